//go:build unix && !solaris && !aix

package devdb

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// One server a kind lives through all of this, in this order, like the databases in TestLife.
func TestLifeOfPeers(t *testing.T) {
	t.Parallel()
	eachOf(t, testPeers, func(t *testing.T, kind Kind) {
		s := start(t, kind, true)
		t.Run("no databases", func(t *testing.T) { noDatabases(t, s) })
		t.Run("command line and port", func(t *testing.T) { commandLine(t, s) })
		t.Run("freeze holds answers back", func(t *testing.T) { freezeHoldsAnswersBack(t, s) })
		t.Run("kill and restart keeps data", func(t *testing.T) { peerKeepsData(t, s) })
		t.Run("a taken port is told from other failures", func(t *testing.T) { takenPort(t, s) })
		t.Run("a failed start shows the log", func(t *testing.T) { failedStart(t, s) })
	})
}

func noDatabases(t *testing.T, s *Server) {
	if _, _, err := s.CreateDatabase(t.Context()); err == nil || !strings.Contains(err.Error(), string(s.Kind)) {
		t.Errorf("CreateDatabase: %v, want an error that names %s", err, s.Kind)
	}
}

// commandLine: every user of the machine can read it, and a sweep knows an orphan by the folder in it.
func commandLine(t *testing.T, s *Server) {
	out, err := exec.Command("ps", "-ww", "-o", "args=", "-p", strconv.Itoa(s.PID())).Output()
	if err != nil {
		t.Fatal(err)
	}
	if line := string(out); strings.Contains(line, s.local.password) || !strings.Contains(line, s.Dir()) {
		t.Errorf("the command line shows the password, or lacks %s: %s", s.Dir(), line)
	}
	if !strings.Contains(s.AdminDSN(), fmt.Sprintf("127.0.0.1:%d", s.Port())) {
		t.Errorf("the DSN lacks port %d", s.Port())
	}
	if _, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.2:%d", s.Port()), time.Second); err == nil {
		t.Error("listens on more than 127.0.0.1")
	}
}

func peerKeepsData(t *testing.T, s *Server) {
	put(t, s, "answer", "42")
	pid, port := s.PID(), s.Port()
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if alive(pid) || s.PID() != 0 {
		t.Errorf("after Kill process %d lives (PID() is %d)", pid, s.PID())
	}
	if _, err := s.askVersion(t.Context()); err == nil {
		t.Error("a killed server answers")
	}
	for _, what := range []string{"of a killed server", "of a running one"} {
		if err := s.Restart(t.Context()); err != nil {
			t.Fatalf("restart %s: %v", what, err)
		}
		if got := get(t, s, "answer"); got != "42" || s.Port() != port {
			t.Errorf("after the restart %s: %q on port %d, want 42 on %d", what, got, s.Port(), port)
		}
	}
}

// Without Durable, etcd keeps what it does not sync, and Redis only has to answer.
func TestFaultsOfFastPeers(t *testing.T) {
	t.Parallel()
	eachOf(t, testPeers, func(t *testing.T, kind Kind) {
		s := start(t, kind, false)
		put(t, s, "answer", "42")
		if err := s.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := s.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := get(t, s, "answer"); kind == Etcd && got != "42" {
			t.Errorf("%q after the crash, want 42", got)
		}
	})
}

func put(t *testing.T, s *Server, key, value string) {
	t.Helper()
	var err error
	if s.Kind == Etcd {
		err = callEtcd(t.Context(), s.AdminDSN(), "/v3/kv/put",
			map[string][]byte{"key": []byte(key), "value": []byte(value)}, &struct{}{})
	} else {
		_, err = redisCall(t, s, "SET", key, value)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// get gives "" for what is not there.
func get(t *testing.T, s *Server, key string) (value string) {
	t.Helper()
	if s.Kind == Redis {
		text, err := redisCall(t, s, "GETRANGE", key, "0", "-1")
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	var found struct{ KVs []struct{ Value []byte } }
	if err := callEtcd(t.Context(), s.AdminDSN(), "/v3/kv/range", map[string][]byte{"key": []byte(key)}, &found); err != nil {
		t.Fatal(err)
	}
	for _, kv := range found.KVs {
		value = string(kv.Value)
	}
	return value
}

func redisCall(t *testing.T, s *Server, words ...string) (string, error) {
	t.Helper()
	c, err := dialRedis(t.Context(), s.AdminDSN())
	if err != nil {
		return "", err
	}
	defer c.close()
	return c.call(words...)
}

// The tests from here on change the environment, so they can't be parallel.

func TestGivenPeer(t *testing.T) {
	clearEnv(t)
	for _, kind := range testPeers {
		own := start(t, kind, false)
		name := peers[kind].envURL
		t.Setenv(name, own.AdminDSN())
		var said string
		given, err := Start(t.Context(), kind, Options{Logf: func(format string, args ...any) { said = args[0].(string) }})
		if err != nil {
			t.Fatal(err)
		}
		if given.PID() != 0 || given.Source != name || given.Version != own.Version || !strings.Contains(said, name) {
			t.Errorf("not the server given: %+v, said %q", given, said)
		}
		if given.Kill() == nil || given.Restart(t.Context()) == nil || given.Freeze() == nil {
			t.Error("a server of somebody else was killed, restarted or frozen")
		}
		if err := given.Close(); err != nil {
			t.Error(err)
		}
		if _, err := own.askVersion(t.Context()); err != nil {
			t.Errorf("Close stopped a server that was given: %v", err)
		}
		if kind == Redis {
			t.Setenv(name, strings.Replace(own.AdminDSN(), own.local.password, secret, 1))
			checkDSNError(t, Redis, name)
		}
	}
}

func TestPeersAreNotDatabases(t *testing.T) {
	bareMachine(t)
	dir := t.TempDir()
	program(t, filepath.Join(dir, "redis-server"), "Redis server v=7.0.15 sha=00000000:0 malloc=libc bits=64 build=1")
	program(t, filepath.Join(dir, "etcd"), "etcd Version: 3.5.16\nGit SHA: 1\n")
	t.Setenv("PATH", dir)
	for kind, version := range map[Kind]string{Redis: "7.0.15", Etcd: "3.5.16"} {
		b, err := findBinaries(t.Context(), kind)
		if err != nil || b == nil || b.version != version || filepath.Dir(b.daemon) != dir {
			t.Errorf("%s: found %+v, %v", kind, b, err)
		}
	}
	if got := Available(t.Context()); len(got) != 0 {
		t.Errorf("Available: %v", got)
	}
	if kind, err := MySQLFamily(t.Context()); err == nil {
		t.Errorf("MySQLFamily: %s", kind)
	}
}

func TestPeersThatCantBeUsed(t *testing.T) {
	bareMachine(t)
	path := filepath.Join(t.TempDir(), "daemon")
	for _, c := range []struct {
		kind       Kind
		says, want string
	}{
		{Redis, "Redis server v=6.0.16 sha=00000000:0", "too old"},
		{Redis, "Valkey server v=8.0.1 sha=00000000:0", "Valkey"},
		{Etcd, "etcd Version: 3.4.20", "too old"},
		{Etcd, "etcd Version: 3.5.4", "too old"},
		{Etcd, "", `--version said ""`},
	} {
		program(t, path, c.says)
		t.Setenv(peers[c.kind].envPath, path)
		_, err := Start(t.Context(), c.kind, Options{})
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), peers[c.kind].envPath) {
			t.Errorf("%s that says %q: %v, want %q", c.kind, c.says, err, c.want)
		}
	}
}

func TestAtLeast(t *testing.T) {
	for version, want := range map[string]bool{
		"3.4.21": true, "3.4.9": false, "3.10.0": true, "3": false, "4": true, "3.5.0-rc.1": true, "3.4": false, "": false,
	} {
		if got := atLeast(version, 3, 4, 21); got != want {
			t.Errorf("%q at least 3.4.21: %v", version, got)
		}
	}
}

func TestUnreadablePeerURL(t *testing.T) {
	clearEnv(t)
	for _, dsn := range []string{
		"rediss://:" + secret + "@h/0", "redis://:" + secret + "/x@h/0", "redis://u:12/" + secret + "@h", "redis://:" + secret + "#x@h",
		"redis://:" + secret + "%zz@h", "h:6379", "redis://:" + secret + "@/0", "redis://:" + secret + "@h/0?db=1",
	} {
		t.Setenv(envRedisURL, dsn)
		checkDSNError(t, Redis, envRedisURL)
	}
	for _, dsn := range []string{
		"http://u:" + secret + "@h:2379", "h:2379", "http://h:2379/" + secret, "http://h:2379?" + secret, "http://:2379",
	} {
		t.Setenv(envEtcdURL, dsn)
		checkDSNError(t, Etcd, envEtcdURL)
	}
	t.Setenv(envRedisURL, "redis://:"+secret+"@127.0.0.1:1/0")
	checkDSNError(t, Redis, envRedisURL)
	t.Setenv(envEtcdURL, "http://127.0.0.1:1")
	checkDSNError(t, Etcd, envEtcdURL)
}

// What is no Redis may well quote what it was sent.
func TestRedisAnswersThatAreNone(t *testing.T) {
	clearEnv(t)
	for _, answer := range []string{
		"-ERR unknown command 'AUTH', with args beginning with: '" + secret + "'\r\n", "HTTP/1.1 400 Bad Request\r\n\r\n",
		"$-1\r\n", "$99999999\r\n", "+OK\r\n", "+OK\r\n+PONG\r\n$4\r\na:b\n\r\n", "",
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			conn, err := l.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			_, _ = conn.Read(make([]byte, 1024)) // closing with input unread would reset the connection
			_, _ = conn.Write([]byte(answer))
		}()
		t.Setenv(envRedisURL, "redis://:"+secret+"@"+l.Addr().String())
		checkDSNError(t, Redis, envRedisURL)
		l.Close()
		<-done
	}
}

func TestValkeyIsNotRedis(t *testing.T) {
	clearEnv(t)
	info := "redis_version:7.2.4\r\nserver_name:valkey\r\n"
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = fmt.Fprintf(conn, "+PONG\r\n$%d\r\n%s\r\n", len(info), info)
		_, _ = conn.Read(make([]byte, 1024))
		_, _ = conn.Read(make([]byte, 1024))
	}()
	t.Setenv(envRedisURL, "redis://"+l.Addr().String())
	if _, err := Start(t.Context(), Redis, Options{}); err == nil || !strings.Contains(err.Error(), "is valkey, not redis") {
		t.Errorf("got %v", err)
	}
}

func TestEtcdAnswersThatAreNone(t *testing.T) {
	clearEnv(t)
	for _, answer := range []string{"", "{}", "<html>", `{"etcdserver":1}`} {
		web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, answer) }))
		t.Setenv(envEtcdURL, web.URL)
		checkDSNError(t, Etcd, envEtcdURL)
		web.Close()
	}
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	t.Setenv(envEtcdURL, web.URL)
	checkDSNError(t, Etcd, envEtcdURL)
}
