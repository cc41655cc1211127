package programs

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
)

// A process of a program is this test binary again. It reads a job, opens what it needs, says
// ready, runs its callers on the command to go, says settled, and ends on a command. All other
// lines are its log.

const envJob = "DBLOCK_TEST_PROGRAM"

// longest bounds a program. Its calls have bounds of their own, so that it takes much less even on
// a busy machine.
const longest = time.Minute

// job is what a process is to do.
type job struct {
	What    string // lock, queue or inventory
	Kind    devdb.Kind
	DSN     string
	Dir     string // of the sections
	Run     string // begins each name of this run
	Process int
	Control string          // the protection that is removed; empty: none
	Killed  time.Duration   // after so long; 0: never
	Frozen  time.Duration   // after so long, for frozenFor; 0: never
	Program json.RawMessage // of the process
}

// log is one line of a process.
type log struct {
	Word string
	Data json.RawMessage
}

func TestMain(m *testing.M) {
	if os.Getenv(envJob) != "" {
		if err := work(); err != nil {
			fmt.Fprintln(os.Stderr, "process:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	testdb.Main(m)
}

// work is the main function of a process.
func work() error {
	in := bufio.NewReader(os.Stdin)
	var j job
	line, err := in.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &j)
	}
	if err != nil {
		return err
	}
	open := map[string]func(context.Context, job) (client, error){
		"lock": openLocks, "queue": openQueue, "inventory": openInventory,
	}[j.What]
	c, err := open(context.Background(), j)
	if err != nil {
		return err
	}
	say("ready", nil)
	if _, err := in.ReadBytes('\n'); err != nil {
		return err
	}
	c.run()
	say("settled", nil)
	_, _ = io.Copy(io.Discard, in)
	c.close()
	say("done", nil)
	return nil
}

// client is the part of a program that one process runs.
type client interface {
	run()
	close()
}

var sayOne sync.Mutex

// say adds a line to the log of this process.
func say(word string, data any) {
	b, err := json.Marshal(data)
	if err == nil {
		b, err = json.Marshal(log{Word: word, Data: b})
	}
	if err != nil {
		panic(err)
	}
	sayOne.Lock()
	defer sayOne.Unlock()
	_, _ = os.Stdout.Write(append(b, '\n'))
}

// now is the time by a clock that all processes share.
func now() int64 { return time.Now().UnixNano() }

// process is one that runs.
type process struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	errors bytes.Buffer
	word   map[string]chan struct{}
	logs   []log
	ended  chan struct{}
	killed atomic.Bool // as the program says
}

// start starts a process.
func start(ctx context.Context, j job) (*process, error) {
	p := &process{cmd: exec.CommandContext(ctx, os.Args[0]), ended: make(chan struct{}), word: map[string]chan struct{}{
		"ready": make(chan struct{}), "settled": make(chan struct{}), "done": make(chan struct{}),
	}}
	p.cmd.Env = append(os.Environ(), envJob+"=1")
	p.cmd.Stderr = &p.errors
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.ended)
		p.read(out)
		_ = p.cmd.Wait()
	}()
	line, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	_, err = p.in.Write(append(line, '\n'))
	return p, err
}

func (p *process) read(out io.Reader) {
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var l log
		if err := json.Unmarshal(line, &l); err != nil {
			continue // of the runtime, which is about to end the process
		}
		if said := p.word[l.Word]; said != nil {
			close(said)
			continue
		}
		p.logs = append(p.logs, l)
	}
}

// says waits until the process has said a word.
func (p *process) says(ctx context.Context, word string) bool {
	select {
	case <-p.word[word]:
		return true
	case <-p.ended:
	case <-ctx.Done():
	}
	select {
	case <-p.word[word]:
		return true
	default:
		return false
	}
}

// lastWords is the end of what a process wrote before it ended.
func (p *process) lastWords() string {
	b := p.errors.Bytes()
	const most = 3000
	if len(b) > most {
		b = b[:most] // the panic comes first
	}
	return string(b)
}

func (p *process) kill() {
	p.killed.Store(true)
	_ = p.cmd.Process.Kill()
}

// frozenFor is longer than queueTTL.
const frozenFor = queueTTL + time.Second

func (p *process) freeze() {
	_ = suite.Suspend(p.cmd.Process)
	time.Sleep(frozenFor)
	_ = suite.Resume(p.cmd.Process)
}

// runAll runs the processes of a program with something beside them, and calls settled when all
// callers have returned and all processes live. It returns their logs, those of each process by
// itself.
func runAll(v *verdict, jobs []job, beside func(ctx context.Context), settled func(ctx context.Context)) [][]log {
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	var all []*process
	for _, j := range jobs {
		p, err := start(ctx, j)
		if err != nil {
			v.add("broken", "a process does not start: %v", err)
			break
		}
		all = append(all, p)
	}
	reach := func(word string) bool {
		for i, p := range all {
			if p.says(ctx, word) || p.killed.Load() {
				continue
			}
			if ctx.Err() != nil {
				v.add("hang", "process %d is not %s after %v", i, word, longest)
				quit(p)
			} else {
				<-p.ended
				v.add("ended", "process %d ended before it was %s: %s", i, word, p.lastWords())
			}
			return false
		}
		return true
	}
	if v.kind == "" && reach("ready") {
		for i, p := range all {
			_, _ = p.in.Write([]byte("go\n"))
			if after := jobs[i].Killed; after > 0 {
				defer time.AfterFunc(after, p.kill).Stop()
			}
			if after := jobs[i].Frozen; after > 0 {
				defer time.AfterFunc(after, p.freeze).Stop()
			}
		}
		faults, stop := context.WithCancel(ctx)
		var nearby sync.WaitGroup
		nearby.Go(func() { beside(faults) })
		ok := reach("settled")
		stop()
		nearby.Wait()
		if ok {
			settled(ctx)
			for _, p := range all {
				_ = p.in.Close()
			}
			reach("done")
		}
	}
	var logs [][]log
	for _, p := range all {
		_ = p.cmd.Process.Kill()
		<-p.ended
		if v.kind == "hang" && p.errors.Len() > 0 {
			v.add("hang", "%s", p.lastWords())
		}
		logs = append(logs, p.logs)
	}
	return logs
}
