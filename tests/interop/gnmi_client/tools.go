//go:build tools

// Programs that the tests run, so that go.mod and go.sum name their versions.
package main

import (
	_ "github.com/openconfig/gnmi/cmd/gnmi_cli"
	_ "github.com/openconfig/gnmi/cmd/gnmi_collector"
	_ "github.com/openconfig/ygot/generator"
)
