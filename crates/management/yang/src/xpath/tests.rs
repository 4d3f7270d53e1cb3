//! Tests of XPath expressions.

use super::*;

/// Two users and a group, in two namespaces.
fn data() -> Vec<Element> {
    let text = r#"<data xmlns="urn:d"><users><user><name>root</name><id>0</id><shell>/bin/sh</shell></user>
        <user><name>fred</name><id>7</id><group>a</group><group>b</group></user></users>
        <x:group xmlns:x="urn:e"><x:name>a</x:name></x:group><number> 12.50 </number></data>"#;
    let mut children = Element::parse(text.as_bytes()).unwrap().children;
    fn bare(element: &mut Element) {
        element.attributes.clear();
        if !element.children.is_empty() {
            element.text.clear();
        }
        element.keys = usize::from(element.name == "user");
        element.children.iter_mut().for_each(bare);
    }
    children.iter_mut().for_each(bare);
    children
}

fn select(text: &str) -> Result<String, XPathError> {
    let namespaces = [("d", "urn:other"), ("e", "urn:e"), ("d", "urn:d")];
    let selected = XPath::parse(text, &namespaces)?.select(&data())?;
    let text: String = selected.iter().map(ToString::to_string).collect();
    Ok(text
        .replace(" xmlns=\"urn:d\"", "")
        .replace(" xmlns=\"urn:e\"", ""))
}

/// Returns the texts of the selected nodes.
fn texts(text: &str) -> Vec<String> {
    let data = data();
    let tree = Tree::new(&data);
    let namespaces = [("d", "urn:d"), ("e", "urn:e")];
    let nodes = XPath::parse(text, &namespaces).unwrap().nodes(&tree).unwrap();
    let of = |node| {
        let mut out = String::new();
        tree.text(node, &mut out);
        out
    };
    nodes.into_iter().map(of).collect()
}

/// Returns whether an expression is true: it decides about an element that is there.
fn is_true(text: &str) -> bool {
    !texts(&format!("/users/user[2][{text}]")).is_empty()
}

const FRED: &str = "<user><name>fred</name><id>7</id><group>a</group><group>b</group></user>";

#[test]
fn selected_elements_come_with_ancestors_and_keys() {
    assert_eq!(
        select("/users/user[name='fred']").unwrap(),
        format!("<users>{FRED}</users>")
    );
    assert_eq!(
        select("/d:users/d:user/d:id").unwrap(),
        "<users><user><name>root</name><id>0</id></user><user><name>fred</name><id>7</id></user></users>"
    );
    assert_eq!(select("//e:name").unwrap(), "<group><name>a</name></group>");
    assert_eq!(select("//d:name[. = 'a']").unwrap(), "");
    assert_eq!(
        select("/users/user[2]/id/text()").unwrap(),
        "<users><user><name>fred</name><id>7</id></user></users>"
    );
    assert_eq!(select("//user[id > 100]").unwrap(), "");
    let all: String = data().iter().map(ToString::to_string).collect();
    for whole in [
        "/",
        "/*",
        "//node()",
        "//id/ancestor::node()",
        "/users | /group | /number",
    ] {
        assert_eq!(
            select(whole).unwrap(),
            all.replace(" xmlns=\"urn:d\"", "")
                .replace(" xmlns=\"urn:e\"", ""),
            "{whole}"
        );
    }
}

#[test]
fn axes_have_their_nodes_in_their_order() {
    for (path, expected) in [
        ("//user[1]/following::id", vec!["7"]),
        ("//group[. = 'b']/preceding-sibling::*[1]", vec!["a"]),
        ("//group[. = 'b']/preceding-sibling::*", vec!["fred", "7", "a"]),
        ("//id[. = 7]/following-sibling::group", vec!["a", "b"]),
        ("//id[. = 7]/preceding::name", vec!["root", "fred"]),
        ("//name[. = 'fred']/../id", vec!["7"]),
        ("//name[. = 'fred']/parent::user/child::id", vec!["7"]),
        ("//shell/ancestor-or-self::*[1]", vec!["/bin/sh"]),
        ("//shell/ancestor::user/name", vec!["root"]),
        ("//user/descendant::group[2]", vec!["b"]),
        ("//user/group[last()]", vec!["b"]),
        ("(//group)[1]", vec!["a"]),
        ("(//group)[last()]/name", vec!["a"]),
        ("//user[position() = 2]/name", vec!["fred"]),
        ("//user/@id", vec![]),
        ("//user/self::e:user", vec![]),
        (
            "/users/user/*[self::id or self::shell]",
            vec!["0", "/bin/sh", "7"],
        ),
        ("id('a') | //comment() | //processing-instruction('a')", vec![]),
    ] {
        assert_eq!(texts(path), expected, "{path}");
    }
}

#[test]
fn values_become_others_as_the_recommendation_says() {
    for expression in [
        "1 + 2 * 3 = 7",
        "- 3 - - 4 = 1",
        "--1 = 1",
        "7 mod 3 = 1 and -7 mod 3 = -1 and 7 div 2 = 3.5",
        "1 < 2 = true()",
        "'a' < 2 = false()",
        "group = 'b' and group != 'b'",
        "not(shell = '') and not(shell != '')",
        "id = '7' and id = 7 and id >= 7.0",
        "//number = 12.5 and //number > 12",
        "string(//number) = ' 12.50 '",
        "string(number('x')) = 'NaN' and not(number('x') = number('x'))",
        "1 div 0 = 1 div 0 and string(-1 div 0) = '-Infinity'",
        "string(-0) = '0' and string(1000000 * 1000000 * 1000000 * 10000) = '10000000000000000000000'",
        "string(0.5) = '0.5' and string(.5) = '0.5' and string(5.) = '5'",
        "number('1e3') != number('1e3') and number('+1') != number('+1') and number(' -1.5 ') = -1.5",
        "count(group) = 2 and sum(//id) = 7 and sum(//nothing) = 0",
        "boolean('false') and not(boolean(0)) and not(boolean(number('x')))",
        "local-name() = 'user' and name(//e:*) = 'group' and namespace-uri(//e:*) = 'urn:e'",
        "string() = 'fred7ab' and string-length(name) = 4",
        "concat('a', 1, true()) = 'a1true'",
        "starts-with(name, 'fr') and contains(name, '') and not(contains('', 'a'))",
        "substring-before('1999/04/01', '/') = '1999' and substring-after('1999/04/01', '/') = '04/01'",
        "substring-after('abc', '') = 'abc' and substring-before('abc', 'x') = ''",
        // The examples of section 4.2.
        "substring('12345', 2, 3) = '234' and substring('12345', 2) = '2345'",
        "substring('12345', 1.5, 2.6) = '234' and substring('12345', 0, 3) = '12'",
        "substring('12345', 0 div 0, 3) = '' and substring('12345', 1, 0 div 0) = ''",
        "substring('12345', -42, 1 div 0) = '12345' and substring('12345', -1 div 0, 1 div 0) = ''",
        "translate('bar', 'abc', 'ABC') = 'BAr' and translate('--aaa--', 'abc-', 'ABC') = 'AAA'",
        "normalize-space('  a   b ') = 'a b'",
        "floor(-1.5) = -2 and ceiling(-1.5) = -1 and round(2.5) = 3 and round(-2.5) = -2",
        "lang('en') = false()",
        "group[2] = /users/user/group[. = 'b']",
        "mod = div or 1",
    ] {
        assert!(is_true(expression), "{expression}");
    }
}

#[test]
fn an_error_says_where_and_what_was_expected() {
    for (text, at) in [
        ("", 0),
        ("/users/", 7),
        ("//", 2),
        ("/users[", 7),
        ("/users[1", 8),
        ("/users]", 6),
        ("a b", 2),
        ("'a", 0),
        ("a::b", 0),
        ("::a", 0),
        ("a:", 0),
        ("unknown(1)", 0),
        ("count()", 0),
        ("/*[count(1,]", 11),
        ("$a", 0),
        ("1 1", 2),
        ("a[#]", 2),
    ] {
        match XPath::parse(text, &[]) {
            Err(XPathError::Syntax { at: found, .. }) => assert_eq!(found, at, "{text}"),
            other => panic!("{text}: {other:?}"),
        }
    }
    let error = XPath::parse("/q:users", &[("p", "urn:d")]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "at byte 1: the prefix `q` has no namespace: expected `xmlns:q` at the filter or around it"
    );
    for (text, value) in [("1", "number"), ("'a'", "string"), ("/users = 1", "boolean")] {
        assert_eq!(select(text), Err(XPathError::NotNodes(value)));
    }
    for text in ["1[1]", "'a'/b", "count('a')", "(1 | /users)"] {
        assert!(matches!(select(text), Err(XPathError::NotNodes(_))), "{text}");
    }
}

#[test]
fn an_expression_is_bounded_in_size_depth_and_work() {
    let long = format!("/{}", "a".repeat(LENGTH_MAX));
    let deep = format!("{}1{}", "(".repeat(40), ")".repeat(40));
    let many = vec!["1"; 200].join("+");
    for text in [&long, &deep, &many] {
        assert!(
            matches!(XPath::parse(text, &[]), Err(XPathError::TooLong(_))),
            "{text}"
        );
    }
    let list = Element {
        children: vec![Element::new("urn:d", "one").with_text("1"); 3000],
        ..Element::new("urn:d", "list")
    };
    let path = XPath::parse("//*[count(//*[count(//*) > 0]) > 0]", &[]).unwrap();
    assert_eq!(
        path.select(std::slice::from_ref(&list)),
        Err(XPathError::TooMuchWork)
    );
    let path = XPath::parse("//one[string(/) = concat(/, /)]", &[]).unwrap();
    assert_eq!(path.select(&[list]), Err(XPathError::TooMuchWork));
}
