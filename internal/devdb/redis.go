package devdb

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

type redisEngine struct{ disposable }

const redisConfig = "redis.conf"

// initialize writes what must not be read on the command line: the password. Redis keeps its data
// in its working folder, so no path stands in the file that would need quoting.
func (redisEngine) initialize(_ context.Context, l *local) error {
	lines := []string{
		"bind 127.0.0.1", "requirepass " + l.password, `save ""`,
		"set-proc-title no", // the command line is how a sweep knows an orphan
	}
	if l.durable {
		lines = append(lines, "appendonly yes", "appendfsync always")
	} else {
		lines = append(lines, "appendonly no")
	}
	path := l.dir.join(redisConfig)
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		return err
	}
	return giveToServer(path)
}

func (redisEngine) args(l *local) []string {
	return []string{l.dir.join(redisConfig), "--port", strconv.Itoa(l.port)}
}

func (redisEngine) adminDSN(l *local) string {
	u := url.URL{
		Scheme: "redis",
		User:   url.UserPassword("", l.password),
		Host:   net.JoinHostPort("127.0.0.1", strconv.Itoa(l.port)),
		Path:   "/0",
	}
	return u.String()
}

// ready asks for the configuration file too: when the port was taken in the last moment, what
// answers is somebody else's server.
func (redisEngine) ready(ctx context.Context, l *local, s *Server) error {
	info, err := redisInfo(ctx, s.admin)
	if err != nil {
		return err
	}
	return sameFolder(filepath.Dir(info["config_file"]), l.dir.path)
}

func askRedis(ctx context.Context, dsn string) (serverVersion, error) {
	info, err := redisInfo(ctx, dsn)
	kind := Redis
	if name := info["server_name"]; name != "" {
		kind = Kind(name) // Valkey names itself, Redis doesn't
	}
	return serverVersion{kind, info["redis_version"]}, err
}

// redisInfo is the server's account of itself. It is asked for after a PING, which a server that
// still loads its data refuses.
func redisInfo(ctx context.Context, dsn string) (map[string]string, error) {
	c, err := dialRedis(ctx, dsn)
	if err != nil {
		return nil, err
	}
	defer c.close()
	if _, err := c.call("PING"); err != nil {
		return nil, err
	}
	text, err := c.call("INFO", "server")
	if err != nil {
		return nil, err
	}
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, found := strings.Cut(strings.TrimSpace(line), ":"); found {
			info[name] = value
		}
	}
	if info["redis_version"] == "" {
		return nil, errors.New("it names no version")
	}
	return info, nil
}

var errRedisURL = errors.New("not readable as a Redis URL: write redis://:password@host:6379/0 " +
	"and percent-encode special characters in the password")

// parseRedis is strict about the path: where a / in a password is not encoded, the rest of the
// password would be taken for it, and its first half for a port that errors may show.
func parseRedis(dsn string) (*url.URL, error) {
	u, err := url.Parse(dsn)
	if err != nil || u.Scheme != "redis" || u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, &DSNError{Err: errRedisURL}
	}
	if number := strings.TrimPrefix(u.Path, "/"); number != "" {
		if _, err := strconv.ParseUint(number, 10, 16); err != nil {
			return nil, &DSNError{Err: errRedisURL}
		}
	}
	return u, nil
}

// redisConn speaks as much of Redis' protocol as it takes to see that a server is there.
type redisConn struct {
	conn  net.Conn
	in    *bufio.Reader
	close func()
}

// dialRedis connects and logs in. The connection ends with ctx.
func dialRedis(ctx context.Context, dsn string) (*redisConn, error) {
	u, err := parseRedis(dsn)
	if err != nil {
		return nil, err
	}
	port := u.Port()
	if port == "" {
		port = "6379"
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	c := &redisConn{conn: conn, in: bufio.NewReader(conn), close: func() { stop(); conn.Close() }}
	password, given := u.User.Password()
	if !given {
		return c, nil
	}
	auth := []string{"AUTH", password}
	if name := u.User.Username(); name != "" {
		auth = []string{"AUTH", name, password}
	}
	if _, err := c.call(auth...); err != nil {
		c.close()
		var refused redisError
		if errors.As(err, &refused) { // its text may quote what was sent
			code, _, _ := strings.Cut(string(refused), " ")
			return nil, fmt.Errorf("the login was refused (%s)", code)
		}
		return nil, err
	}
	return c, nil
}

// redisError is an answer that says no.
type redisError string

func (e redisError) Error() string { return string(e) }

// call sends a command and gives its answer, when that is a text; nothing else is asked for here.
func (c *redisConn) call(words ...string) (string, error) {
	command := fmt.Appendf(nil, "*%d\r\n", len(words))
	for _, word := range words {
		command = fmt.Appendf(command, "$%d\r\n%s\r\n", len(word), word)
	}
	if _, err := c.conn.Write(command); err != nil {
		return "", err
	}
	line, err := c.in.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimRight(line, "\r\n")
	switch {
	case strings.HasPrefix(line, "+"):
		return line[1:], nil
	case strings.HasPrefix(line, "-"):
		return "", redisError(line[1:])
	case strings.HasPrefix(line, "$"):
		size, err := strconv.Atoi(line[1:])
		if err != nil || size < 0 || size > 1<<20 {
			break
		}
		text := make([]byte, size+len("\r\n"))
		if _, err := io.ReadFull(c.in, text); err != nil {
			return "", err
		}
		return string(text[:size]), nil
	}
	return "", errors.New("what answers does not speak Redis' protocol")
}
