// Command dblock migrates and inspects dblock's tables, changes locks and jobs, and measures the
// toolkit. See dblock --help.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"reflect"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/alecthomas/kong"
	"golang.org/x/term"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/guardian"
)

// cli has one field a subcommand; each lives in a file of its own and has the method
// Run(context.Context, streams) error.
type cli struct {
	Bench   benchCmd   `cmd:"" help:"Measure strategies, locks, limits and SQL scripts on throwaway servers."`
	Demo    demoCmd    `cmd:"" help:"Run a flash sale on throwaway servers and check the books."`
	Doctor  doctorCmd  `cmd:"" help:"Check whether a database meets dblock's requirements, and say what to change. Writes nothing."`
	Lock    lockCmd    `cmd:"" help:"Run a command while holding a lease lock, or permits: dblock lock KEY -- COMMAND."`
	Locks   locksCmd   `cmd:"" help:"List the lease locks that are held, and their holders."`
	Unlock  unlockCmd  `cmd:"" help:"Release a lease lock that another process holds."`
	Permits permitsCmd `cmd:"" help:"Give a semaphore another number of permits."`
	Queue   queueCmd   `cmd:"" help:"Count, show, retry, cancel and pause jobs."`
	Migrate migrateCmd `cmd:"" help:"Create, look at or drop dblock's tables."`
	Version versionCmd `cmd:"" help:"Print the version of this program and of its tables."`
}

const description = `Relational locks on the Postgres or MySQL/MariaDB that you already run.

Exit status: 0 done, 1 failed (one line on stderr says why), 2 the command line is wrong. dblock lock ends with the status of
its command.`

// streams are what a command talks to.
type streams struct {
	in       io.Reader
	out, err io.Writer
	terminal bool // a person answers on in
}

func main() {
	guardian.Main() // in a process that guards the command of dblock lock, it does not return
	ctx := untilSignalled()
	terminal := term.IsTerminal(int(os.Stdin.Fd())) // a descriptor is a small number
	os.Exit(run(ctx, os.Args[1:], streams{os.Stdin, os.Stdout, os.Stderr, terminal}))
}

// untilSignalled returns a context that the first signal ends. The second one kills. A signal that
// this process was started to ignore, as nohup does, stays ignored.
func untilSignalled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 1)
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(sig) {
			signal.Notify(signals, sig)
		}
	}
	go func() {
		for sig := range signals {
			if !guardian.CommandHas(sig) { // what Ctrl-C ends is for that command to say
				break
			}
		}
		signal.Stop(signals)
		cancel()
	}()
	return ctx
}

const (
	exitFailed = 1
	exitUsage  = 2
)

// run is the whole command but for the process around it.
func run(ctx context.Context, args []string, s streams) int {
	ended := -1
	parser, err := kong.New(&cli{}, kong.Name("dblock"), kong.Description(description), kong.Writers(s.out, s.err),
		kong.Exit(func(code int) { ended = code }), kong.UsageOnError(),
		kong.KindMapper(reflect.String, kong.MapperFunc(decodeText)), kong.BindTo(ctx, (*context.Context)(nil)), kong.Bind(s))
	if err != nil {
		panic(err) // the tags of cli are wrong, for whatever arguments
	}
	command, err := parser.Parse(args)
	if ended >= 0 { // --help has printed what was wanted
		return ended
	}
	if err != nil {
		return fail(s, fmt.Errorf("%w (see dblock --help)", err), exitUsage)
	}
	err = command.Run()
	var ran *commandFailed
	switch {
	case err == nil:
		return 0
	case errors.As(err, &ran):
		if !errors.Is(err, dblock.ErrLost) {
			return ran.status // the command itself has said why
		}
		return fail(s, err, ran.status)
	case errors.Is(err, dblock.ErrInvalid):
		return fail(s, err, exitUsage)
	default:
		return fail(s, err, exitFailed)
	}
}

// decodeText takes an argument as it is: kong's own mapper replaces bytes that are not UTF-8. Only
// the command of dblock lock and a DSN may have such bytes.
func decodeText(from *kong.DecodeContext, target reflect.Value) error {
	token, err := from.Scan.PopValue("string")
	if err != nil {
		return err
	}
	text := fmt.Sprint(token.Value)
	if v := from.Value; !utf8.ValidString(text) && v.Name != "database" && v.Name != "command" {
		return fmt.Errorf("%q is not valid UTF-8", text)
	}
	target.SetString(text)
	return nil
}

// fail prints one line, whatever lists drivers put into their errors.
func fail(s streams, err error, code int) int {
	line := strings.Join(strings.Fields(err.Error()), " ")
	if !strings.HasPrefix(line, "dblock: ") {
		line = "dblock: " + line
	}
	_, _ = fmt.Fprintln(s.err, line) // a failed write to stderr cannot be reported
	return code
}
