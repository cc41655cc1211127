// Command peers measures dblock beside its peers: libraries that lock on other servers, queues, and
// what people write by hand. It is `dblock bench` with more scenarios, in a module of its own, so
// that no peer is ever among dblock's dependencies.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/dblock-go/dblock/bench"
)

const description = `Measures dblock and its peers on throwaway servers, interleaved in one run. Each scenario is held
against the first within the same round. The flags are those of dblock bench.

Exit status: 0 done, 1 failed (one line on stderr says why), 2 the command line is wrong.`

type cli struct{ bench.Flags }

// Validate refuses what makes no sense, before any server is started. Kong calls it.
func (c *cli) Validate() error { return c.Check(scenarios()) }

func main() {
	// The second signal kills, because the first one lets go of the context.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

const (
	exitFailed = 1
	exitUsage  = 2
)

// run is the whole command but for the process around it.
func run(ctx context.Context, args []string, out, errs io.Writer) int {
	ended := -1
	var c cli
	parser, err := kong.New(&c, kong.Name("peers"), kong.Description(description), kong.Writers(out, errs),
		kong.Exit(func(code int) { ended = code }), kong.UsageOnError())
	if err != nil {
		panic(err) // the tags of bench.Flags are wrong, for whatever arguments
	}
	_, err = parser.Parse(args)
	if ended >= 0 { // --help has printed what was wanted
		return ended
	}
	if err != nil {
		return fail(errs, fmt.Errorf("%w (see peers --help)", err), exitUsage)
	}
	if err := bench.Run(ctx, c.Flags, scenarios(), out, errs); err != nil {
		return fail(errs, err, exitFailed)
	}
	return 0
}

// fail prints one line, whatever lists drivers put into their errors.
func fail(errs io.Writer, err error, code int) int {
	_, _ = fmt.Fprintln(errs, "peers: "+strings.Join(strings.Fields(err.Error()), " ")) // a failed write to stderr cannot be reported
	return code
}
