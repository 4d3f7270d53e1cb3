// A client of gNMI in Go. `commit` runs the Commit extension through its states; `parse` reads the interfaces by Get and by Subscribe and
// gives each reply to the structs that ygot generates from the OpenConfig modules (package oc, written by scripts/setup.sh gnmi-clients).
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/openconfig/gnmi/proto/gnmi"
	"github.com/openconfig/gnmi/proto/gnmi_ext"
	"github.com/openconfig/ygot/ygot"
	"github.com/openconfig/ygot/ytypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"millrace.invalid/gnmi_client/oc"
)

func check(err error, what string) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", what, err)
		os.Exit(1)
	}
}

func dial(address, ca, cert, key string) gnmi.GNMIClient {
	pair, err := tls.LoadX509KeyPair(cert, key)
	check(err, "certificate")
	pem, err := os.ReadFile(ca)
	check(err, "authority")
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	config := &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots}
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(config)))
	check(err, "connection")
	return gnmi.NewGNMIClient(connection)
}

// setting returns the path of a setting of the bridge br0.
func setting(name string) *gnmi.Path {
	return &gnmi.Path{Origin: "millrace", Elem: []*gnmi.PathElem{
		{Name: "bridge", Key: map[string]string{"name": "br0"}}, {Name: name}}}
}

func interfaces() *gnmi.Path {
	return &gnmi.Path{Origin: "openconfig", Elem: []*gnmi.PathElem{{Name: "interfaces"}}}
}

// ageing returns a Set of the ageing time; none of 0.
func ageing(seconds uint64, commit *gnmi_ext.Commit) *gnmi.SetRequest {
	request := &gnmi.SetRequest{}
	if seconds > 0 {
		value := &gnmi.TypedValue{Value: &gnmi.TypedValue_UintVal{UintVal: seconds}}
		request.Update = []*gnmi.Update{{Path: setting("mac_ageing_s"), Val: value}}
	}
	if commit != nil {
		request.Extension = []*gnmi_ext.Extension{{Ext: &gnmi_ext.Extension_Commit{Commit: commit}}}
	}
	return request
}

func begin(id string, within time.Duration) *gnmi_ext.Commit {
	action := &gnmi_ext.CommitRequest{RollbackDuration: durationpb.New(within)}
	return &gnmi_ext.Commit{Id: id, Action: &gnmi_ext.Commit_Commit{Commit: action}}
}

func confirm(id string) *gnmi_ext.Commit {
	return &gnmi_ext.Commit{Id: id, Action: &gnmi_ext.Commit_Confirm{Confirm: &gnmi_ext.CommitConfirm{}}}
}

func cancel(id string) *gnmi_ext.Commit {
	return &gnmi_ext.Commit{Id: id, Action: &gnmi_ext.Commit_Cancel{Cancel: &gnmi_ext.CommitCancel{}}}
}

func extend(id string, within time.Duration) *gnmi_ext.Commit {
	action := &gnmi_ext.CommitSetRollbackDuration{RollbackDuration: durationpb.New(within)}
	return &gnmi_ext.Commit{Id: id, Action: &gnmi_ext.Commit_SetRollbackDuration{SetRollbackDuration: action}}
}

func present(ctx context.Context, client gnmi.GNMIClient) uint64 {
	reply, err := client.Get(ctx, &gnmi.GetRequest{Path: []*gnmi.Path{setting("mac_ageing_s")}, Encoding: gnmi.Encoding_PROTO})
	check(err, "Get")
	return reply.Notification[0].Update[0].Val.GetUintVal()
}

// commits runs the extension: confirm, cancel, time-out, and what is refused.
func commits(ctx context.Context, client gnmi.GNMIClient) {
	for number, step := range []struct {
		request *gnmi.SetRequest
		refused bool
		ageing  uint64
	}{
		{ageing(400, begin("a", time.Minute)), false, 400},
		{ageing(401, begin("b", time.Minute)), true, 400},
		{ageing(402, nil), true, 400},
		{ageing(0, confirm("b")), true, 400},
		{ageing(0, extend("a", 2*time.Minute)), false, 400},
		{ageing(0, confirm("a")), false, 400},
		{ageing(0, confirm("a")), true, 400},
		{ageing(500, begin("c", time.Minute)), false, 500},
		{ageing(0, cancel("b")), true, 500},
		{ageing(0, cancel("c")), false, 400},
		{ageing(600, begin("", time.Minute)), true, 400},
		{ageing(700, begin("d", time.Minute)), false, 700},
		{ageing(0, extend("d", time.Second)), false, 700},
	} {
		_, err := client.Set(ctx, step.request)
		if (err != nil) != step.refused || (err != nil && status.Code(err) == codes.Internal) {
			check(fmt.Errorf("%v, expected a refusal: %v", err, step.refused), fmt.Sprintf("step %d", number))
		}
		if found := present(ctx, client); found != step.ageing {
			check(fmt.Errorf("mac_ageing_s is %d, expected %d (%v)", found, step.ageing, err), fmt.Sprintf("step %d", number))
		}
	}
	for present(ctx, client) != 400 {
		time.Sleep(20 * time.Millisecond)
	}
	fmt.Println("commit, confirm, cancel, set_rollback_duration and the time-out: as expected")
}

// parse gives replies to the generated structs.
func parse(ctx context.Context, client gnmi.GNMIClient) {
	reply, err := client.Get(ctx, &gnmi.GetRequest{Path: []*gnmi.Path{interfaces()}, Encoding: gnmi.Encoding_JSON_IETF})
	check(err, "Get")
	device := &oc.Device{Interfaces: &oc.OpenconfigInterfaces_Interfaces{}}
	value := reply.Notification[0].Update[0].Val.GetJsonIetfVal()
	check(oc.Unmarshal(value, device.Interfaces), "a reply to Get")
	check(device.Validate(), "the data of Get")
	for name, one := range device.Interfaces.Interface {
		fmt.Printf("get %s %v %d\n", name, one.State.OperStatus, *one.State.Ifindex)
	}
	for _, encoding := range []gnmi.Encoding{gnmi.Encoding_JSON_IETF, gnmi.Encoding_PROTO} {
		schema, err := oc.Schema()
		check(err, "schema")
		stream, err := client.Subscribe(ctx)
		check(err, "Subscribe")
		list := &gnmi.SubscriptionList{Mode: gnmi.SubscriptionList_ONCE, Encoding: encoding,
			Subscription: []*gnmi.Subscription{{Path: interfaces()}}}
		check(stream.Send(&gnmi.SubscribeRequest{Request: &gnmi.SubscribeRequest_Subscribe{Subscribe: list}}), "Subscribe")
		leaves, synced := 0, false
		for {
			message, err := stream.Recv()
			if err == io.EOF {
				break
			}
			check(err, "Subscribe")
			synced = synced || message.GetSyncResponse()
			for _, update := range message.GetUpdate().GetUpdate() {
				path := &gnmi.Path{Elem: append(append([]*gnmi.PathElem{}, message.GetUpdate().GetPrefix().GetElem()...), update.Path.Elem...)}
				err := ytypes.SetNode(schema.RootSchema(), schema.Root, path, update.Val, &ytypes.InitMissingElements{})
				check(err, fmt.Sprintf("%v of %v", update.Val, path))
				leaves++
			}
		}
		parsed := schema.Root.(*oc.Device)
		check(parsed.Validate(), "the data of Subscribe")
		if !synced || len(parsed.Interfaces.Interface) != len(device.Interfaces.Interface) {
			check(fmt.Errorf("%d interfaces", len(parsed.Interfaces.Interface)), "Subscribe")
		}
		diff, err := ygot.Diff(configOf(device), configOf(parsed))
		check(err, "difference")
		if len(diff.Update)+len(diff.Delete) > 0 {
			check(fmt.Errorf("%v", diff), "Get and Subscribe differ")
		}
		fmt.Printf("once %v %d\n", encoding, leaves)
	}
}

// configOf returns a copy without what changes by itself.
func configOf(device *oc.Device) *oc.Device {
	copied, err := ygot.DeepCopy(device)
	check(err, "copy")
	result := copied.(*oc.Device)
	for _, one := range result.Interfaces.Interface {
		one.State = nil
	}
	return result
}

func main() {
	address := flag.String("address", "", "HOST:PORT of the switch")
	ca, cert, key := flag.String("ca", "", "authority"), flag.String("cert", "", "certificate"), flag.String("key", "", "key")
	flag.Parse()
	client := dial(*address, *ca, *cert, *key)
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	switch flag.Arg(0) {
	case "commit":
		commits(ctx, client)
	case "parse":
		parse(ctx, client)
	default:
		check(fmt.Errorf("%q", flag.Arg(0)), "expected commit or parse")
	}
}
