package testdb

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx", for the wait on Postgres
	"github.com/moby/moby/api/types/network"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/log"
	"github.com/testcontainers/testcontainers-go/wait"

	"github.com/dblock-go/dblock/internal/devdb"
)

// The daemon's health check has no deadline of its own.
const daemonTimeout = 3 * time.Second

var dockerWasUsed atomic.Bool

func usedDocker() bool { return dockerWasUsed.Load() }

func dockerFirst() bool { return os.Getenv(envDocker) == "1" }

// dockerUsable asks the daemon: a docker command on the PATH says nothing about one.
var dockerUsable = sync.OnceValue(func() error {
	log.SetDefault(quiet{}) // it announces the daemon, twelve lines a process
	ctx, cancel := context.WithTimeout(context.Background(), daemonTimeout)
	defer cancel()
	provider, err := testcontainers.NewDockerProvider()
	if err != nil {
		return fmt.Errorf("no Docker daemon: %w", err)
	}
	if err := provider.Health(ctx); err != nil {
		return fmt.Errorf("the Docker daemon does not answer: %w", err)
	}
	dockerWasUsed.Store(true)
	return nil
})

type quiet struct{}

func (quiet) Printf(string, ...any) {}

// image is how one kind runs in a container. The images' entrypoints take these variables.
type image struct {
	env, fallback string // the variable that names the image, and the image without it
	port          string
	driver        string
	passwordVars  []string
	args          []string // a fast server, as local ones are
}

var images = map[devdb.Kind]image{
	devdb.Postgres: {
		env: "DBLOCK_POSTGRES_IMAGE", fallback: "postgres:17", port: "5432/tcp", driver: "pgx",
		passwordVars: []string{"POSTGRES_PASSWORD"},
		args: []string{
			"-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off",
			"-c", "max_connections=1000",
		},
	},
	devdb.MariaDB: {
		env: "DBLOCK_MARIADB_IMAGE", fallback: "mariadb:11.4", port: "3306/tcp", driver: "mysql",
		passwordVars: []string{"MARIADB_ROOT_PASSWORD", "MYSQL_ROOT_PASSWORD"},
		args: []string{
			"--innodb-flush-log-at-trx-commit=0", "--innodb-flush-method=nosync", "--skip-innodb-doublewrite",
			"--max-connections=1000", "--skip-name-resolve",
		},
	},
	devdb.MySQL: {
		env: "DBLOCK_MYSQL_IMAGE", fallback: "mysql:8.4", port: "3306/tcp", driver: "mysql",
		passwordVars: []string{"MYSQL_ROOT_PASSWORD"},
		args: []string{
			"--innodb-flush-log-at-trx-commit=0", "--innodb-flush-method=nosync", "--innodb-doublewrite=OFF",
			"--max-connections=1000", "--skip-log-bin", "--skip-name-resolve",
		},
	},
}

// startDocker is devdb's fallback. Where no daemon answers it gives the error that names all the
// ways to get a server, because that is what the reader can act on.
func startDocker(ctx context.Context, kind devdb.Kind) (*devdb.Server, error) {
	if err := dockerUsable(); err != nil {
		return nil, errors.Join(&devdb.NotFoundError{Kind: kind}, err)
	}
	img := images[kind]
	name := cmp.Or(os.Getenv(img.env), img.fallback)
	s, err := startImage(ctx, kind, img, name)
	switch {
	case err == nil:
		return s, nil
	case strings.Contains(err.Error(), "reaper"):
		return nil, fmt.Errorf("can't run testcontainers' own image in Docker, which removes containers after a crash "+
			"(to do without it: set TESTCONTAINERS_RYUK_DISABLED=true): %w", err)
	default:
		return nil, fmt.Errorf("can't run %s in Docker (another image: set %s): %w", name, img.env, err)
	}
}

func startImage(ctx context.Context, kind devdb.Kind, img image, name string) (*devdb.Server, error) {
	password := rand.Text()
	env := map[string]string{}
	for _, v := range img.passwordVars {
		env[v] = password
	}
	dsn := func(host string, port network.Port) string {
		return dockerDSN(kind, password, net.JoinHostPort(host, port.Port()))
	}
	if img.driver == "mysql" {
		// The driver would print each refused attempt of the wait.
		if err := mysql.SetLogger(&mysql.NopLogger{}); err != nil {
			return nil, err
		}
	}
	// A log line would be no sign: the images' builds word it differently.
	c, err := testcontainers.GenericContainer(ctx, testcontainers.GenericContainerRequest{
		ContainerRequest: testcontainers.ContainerRequest{
			Image: name, Env: env, Cmd: img.args, ExposedPorts: []string{img.port},
			WaitingFor: wait.ForSQL(img.port, img.driver, dsn).WithStartupTimeout(2 * time.Minute),
		},
		Started: true,
	})
	stop := func() error { return testcontainers.TerminateContainer(c) }
	if err != nil {
		return nil, errors.Join(err, lastWords(c), stop())
	}
	host, err1 := c.Host(ctx)
	port, err2 := c.MappedPort(ctx, img.port)
	if err := errors.Join(err1, err2); err != nil {
		return nil, errors.Join(err, stop())
	}
	s, err := devdb.Attach(ctx, kind, dsn(host, port), "the image "+name, stop)
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	return s, nil
}

// lastWords is the end of what a container printed, or nil.
func lastWords(c testcontainers.Container) error {
	if c == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), daemonTimeout)
	defer cancel()
	logs, err := c.Logs(ctx)
	if err != nil {
		return nil // it never ran, so the error at hand says it all
	}
	defer logs.Close()
	text, err := io.ReadAll(logs)
	if err != nil || len(text) == 0 {
		return nil
	}
	return fmt.Errorf("the container's log ends with:\n%s", text[max(0, len(text)-2000):])
}

func dockerDSN(kind devdb.Kind, password, addr string) string {
	if kind == devdb.Postgres {
		u := url.URL{
			Scheme: "postgres", User: url.UserPassword("postgres", password), Host: addr,
			Path: "/postgres", RawQuery: "sslmode=disable",
		}
		return u.String()
	}
	c := mysql.NewConfig()
	c.User, c.Passwd, c.Net, c.Addr = "root", password, "tcp", addr
	return c.FormatDSN()
}
