package main

import (
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// bar is the progress line while something runs. It shows nothing if stderr is not a terminal.
type bar struct{ line *progressbar.ProgressBar }

func newBar(w io.Writer, what string, total int) bar {
	file, ok := w.(*os.File)
	watched := ok && term.IsTerminal(int(file.Fd()))
	return bar{progressbar.NewOptions(total,
		progressbar.OptionSetWriter(w),
		progressbar.OptionSetDescription(what),
		progressbar.OptionSetVisibility(watched),
		progressbar.OptionShowCount(),
		progressbar.OptionShowIts(),
		progressbar.OptionSetItsString("answers"),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionClearOnFinish(),
	)}
}

func (b bar) tick() { _ = b.line.Add(1) }
func (b bar) done() { _ = b.line.Finish() }
