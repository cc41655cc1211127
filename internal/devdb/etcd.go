package devdb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
)

// etcdEngine runs a cluster of one.
type etcdEngine struct{ disposable }

// etcdPeers is where members of the cluster would come in. There are none, so it is a socket in
// the server's working folder, in the form that etcd wants, and takes no port.
const etcdPeers = "unix://peers:0"

// etcdUsable refuses versions whose single members answer before a write is on the disk. The
// later ones all have --unsafe-no-fsync, and write there what they don't sync.
func etcdUsable(version string) bool {
	return atLeast(version, 3, 5, 5) || atLeast(version, 3, 4, 21) && !atLeast(version, 3, 5)
}

func (etcdEngine) initialize(context.Context, *local) error { return nil } // the first start does it

func (e etcdEngine) args(l *local) []string {
	args := []string{
		"--name=" + etcdName(l), "--data-dir=" + filepath.Join(l.dir.join(dataName), "etcd"),
		"--listen-client-urls=" + e.adminDSN(l), "--advertise-client-urls=" + e.adminDSN(l),
		"--listen-peer-urls=" + etcdPeers, "--initial-advertise-peer-urls=" + etcdPeers,
		"--initial-cluster=" + etcdName(l) + "=" + etcdPeers,
		"--log-outputs=stderr", // below a process 1 the default would be systemd's journal
	}
	if !l.durable {
		args = append(args, "--unsafe-no-fsync")
	}
	return args
}

// etcdName is the member's name: the one thing of ours that a running etcd tells others.
func etcdName(l *local) string { return filepath.Base(l.dir.path) }

func (etcdEngine) adminDSN(l *local) string {
	return "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(l.port))
}

// ready asks for the name too: when the port was taken in the last moment, what answers is
// somebody else's server. Of a healthy etcd it is known that a leader is elected and writes.
func (etcdEngine) ready(ctx context.Context, l *local, s *Server) error {
	var health struct {
		Health string `json:"health"`
	}
	if err := callEtcd(ctx, s.admin, "/health", nil, &health); err != nil {
		return err
	}
	if health.Health != "true" {
		return fmt.Errorf("its health is %q", health.Health)
	}
	var list struct {
		Members []struct {
			Name string `json:"name"`
		} `json:"members"`
	}
	if err := callEtcd(ctx, s.admin, "/v3/cluster/member/list", struct{}{}, &list); err != nil {
		return err
	}
	if len(list.Members) != 1 || list.Members[0].Name != etcdName(l) {
		return fmt.Errorf("%w: the cluster there is %+v", errPortTaken, list.Members)
	}
	return nil
}

func askEtcd(ctx context.Context, dsn string) (serverVersion, error) {
	var version struct {
		Server string `json:"etcdserver"`
	}
	err := callEtcd(ctx, dsn, "/version", nil, &version)
	if err == nil && version.Server == "" {
		err = errors.New("it names no version")
	}
	return serverVersion{Etcd, version.Server}, err
}

var errEtcdURL = errors.New("not readable as the URL of an etcd: write http://host:2379, without a path and a user")

func checkEtcdURL(dsn string) error {
	u, err := url.Parse(dsn)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil ||
		strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return &DSNError{Err: errEtcdURL}
	}
	return nil
}

// callEtcd asks over HTTP, which etcd answers without a client library: with GET, or with POST
// when there is a question.
func callEtcd(ctx context.Context, dsn, path string, question, answer any) error {
	method, body := http.MethodGet, ""
	if question != nil {
		text, err := json.Marshal(question)
		if err != nil {
			return err
		}
		method, body = http.MethodPost, string(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(dsn, "/")+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	// No connection is kept, because there is nobody to close it, and no proxy is asked for one to
	// this machine.
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // without the URL
		}
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", path, resp.Status, text)
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return fmt.Errorf("%s: what answers is not etcd: %w", path, err)
	}
	return nil
}
