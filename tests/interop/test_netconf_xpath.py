"""NETCONF's filters of type `xpath` beside libxml2: expressions made at random select the same of a switch's configuration."""

import copy
import os
import random
import re
from xml.sax.saxutils import quoteattr

import pytest
from lxml import etree

from front_ends import BASE, MODEL, FrontEnds, Netconf
from switches import Millrace

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="roles of users need root")
EXPRESSIONS = int(os.environ.get("MILLRACE_XPATH_EXPRESSIONS", "300"))
SCHEMA = '<get-schema xmlns="urn:ietf:params:xml:ns:yang:ietf-netconf-monitoring"><identifier>millrace</identifier></get-schema>'
DEFAULTS = '<with-defaults xmlns="urn:ietf:params:xml:ns:yang:ietf-netconf-with-defaults">report-all</with-defaults>'


class Expressions:
    """Makes expressions from the names and values of a document. A path begins with {root}: the children of <data>."""

    AXES = ["child", "child", "child", "descendant", "descendant-or-self", "parent", "ancestor", "ancestor-or-self", "self",
            "following", "following-sibling", "preceding", "preceding-sibling"]

    def __init__(self, tree, seed):
        self.random = random.Random(seed)
        elements = list(tree.iterdescendants())
        self.names = [etree.QName(element).localname for element in elements]
        self.values = [element.text for element in elements if element.text and "'" not in element.text]

    def name(self):
        return "m:*" if self.random.random() < 0.2 else f"m:{self.random.choice(self.names)}"

    def step(self, depth):
        axis = self.random.choice(self.AXES)
        step = self.name() if axis == "child" and self.random.random() < 0.5 else f"{axis}::{self.name()}"
        while depth and self.random.random() < 0.4:
            step += f"[{self.predicate(depth - 1)}]"
        return step

    def relative(self, depth):
        steps = [self.step(depth) for _ in range(self.random.randint(1, 2))]
        return self.random.choice(["/", "/", "//"]).join(steps)

    def text(self, depth):
        return self.random.choice([
            lambda: f"'{self.random.choice(self.values)}'",
            lambda: "string(.)",
            lambda: "local-name()",
            lambda: f"substring(., {self.random.randint(0, 4)}, {self.random.randint(0, 9) / 2})",
            lambda: f"concat({self.relative(depth)}, '-')",
            lambda: f"translate(., 'abc', 'AB')",
            lambda: f"substring-before(., '{self.random.choice('ae:1.')}')",
            lambda: f"substring-after(., '{self.random.choice('ae:1.')}')",
        ])()

    def number(self, depth):
        return self.random.choice([
            lambda: str(self.random.randint(0, 4)),
            lambda: f"count({self.relative(depth)})",
            lambda: "string-length(.)",
            lambda: "position()",
            lambda: "last()",
            lambda: f"sum({self.relative(depth)})",
            lambda: f"number({self.relative(depth)})",
            lambda: f"({self.number(0)} {self.random.choice(['+', '-', '*', 'div', 'mod'])} {self.number(0)})",
            lambda: f"round({self.random.randint(-9, 9) / 2})",
        ])()

    def predicate(self, depth):
        compare = self.random.choice(["=", "!=", "<", "<=", ">", ">="])
        return self.random.choice([
            lambda: str(self.random.randint(1, 3)),
            lambda: self.relative(depth),
            lambda: f"{self.relative(depth)} {compare} {self.text(depth)}",
            lambda: f"{self.relative(depth)} {compare} {self.relative(depth)}",
            lambda: f"{self.number(depth)} {compare} {self.number(depth)}",
            lambda: f"contains(., '{self.random.choice(self.values)[:3]}')",
            lambda: f"starts-with({self.text(depth)}, '{self.random.choice(self.values)[:2]}')",
            lambda: f"not({self.predicate(max(depth - 1, 0))})",
            lambda: f"{self.predicate(0)} {self.random.choice(['and', 'or'])} {self.predicate(0)}",
            lambda: "position() = last()",
        ])()

    def path(self):
        begin = self.random.choice(["{root}/", "{root}//", "{root}//"])
        path = begin + self.relative(2)
        if self.random.random() < 0.2:
            path += "/text()"
        if self.random.random() < 0.15:
            path = f"({path})[{self.predicate(1)}]"
        return f"{path} | {self.path()}" if self.random.random() < 0.15 else path


def pruned(data, nodes, keys):
    """Returns what a server answers: the selected nodes with all inside, their ancestors, and the keys of these."""
    whole = {node.getparent() if isinstance(node, str) else node for node in nodes}
    above = {ancestor for node in whole for ancestor in node.iterancestors()}

    def kept(element):
        if element in whole:
            return copy.deepcopy(element)
        result = etree.Element(element.tag, nsmap=element.nsmap)
        for child in element:
            is_key = etree.QName(child).localname in keys.get(etree.QName(element).localname, ())
            if child in whole or child in above or is_key:
                result.append(kept(child) if child in whole or child in above else copy.deepcopy(child))
        return result

    return kept(data)


def canonical(element):
    """Returns an element as text that does not depend on where namespaces are declared."""
    inner = "".join(canonical(child) for child in element)
    return f"<{element.tag}>{element.text or ''}{inner}</>"


def test_random_expressions_select_what_libxml2_selects(tmp_path):
    with Millrace(tmp_path / "switch", ports=[(number, "memory") for number in range(1, 5)]) as switch:
        switch.change(lambda config: config["bridge"][0].update(controllers=["tcp:127.0.0.1:6633", "tcp:127.0.0.2:6633"]))
        with FrontEnds(tmp_path / "mgmt", switch) as front_ends, Netconf(front_ends.netconf) as session:
            def data(filter_element=""):
                reply = session.call(f"<get-config><source><running/></source>{filter_element}{DEFAULTS}</get-config>")
                if "visits more than" in reply:
                    return None
                return etree.fromstring(reply.encode()).find(f"{{{BASE}}}data")

            configuration = session.call(SCHEMA).replace("&quot;", '"').partition("container switch_state")[0]
            # A list of one name has the same keys wherever it stands, or this would be no map.
            keys = {}
            for name, own in re.findall(r'list (\S+) \{\s*key "([^"]+)"', configuration):
                assert keys.setdefault(name, own.split()) == own.split()
            tree = data()
            assert tree is not None and keys
            expressions = Expressions(tree, seed=8)
            document = etree.ElementTree(copy.deepcopy(tree))
            selecting, too_long = 0, 0
            for _ in range(EXPRESSIONS):
                path = expressions.path()
                ours = data(f'<filter type="xpath" xmlns:m="{MODEL}" select={quoteattr(path.replace("{root}", ""))}/>')
                if ours is None:
                    too_long += 1
                    continue
                nodes = document.xpath(path.replace("{root}", "/*"), namespaces={"m": MODEL})
                expected = pruned(document.getroot(), nodes, keys) if nodes else etree.Element(f"{{{BASE}}}data")
                assert canonical(ours) == canonical(expected), path
                selecting += bool(nodes)
            # Most expressions must select something, or the comparison shows little.
            assert selecting > EXPRESSIONS / 4 and too_long < EXPRESSIONS / 50, (selecting, too_long)
