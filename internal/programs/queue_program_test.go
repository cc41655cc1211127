package programs

import (
	"time"

	"pgregory.net/rapid"
)

// queueProgram is a program of jobs.
type queueProgram struct {
	Processes []queueProcess
	Faults    []fault `json:",omitempty"`
}

// queueProcess has a worker with so many handlers, and callers.
type queueProcess struct {
	Handlers int
	Callers  []queueCaller
	TTL      time.Duration `json:",omitempty"` // 0: the default
	Killed   time.Duration `json:",omitempty"` // after so long; 0: never
	Frozen   time.Duration `json:",omitempty"` // after so long; 0: never
}

// queueTTL is the TTL of programs whose processes are killed or frozen.
const queueTTL = 2 * time.Second

type queueCaller struct {
	Copies, Times int
	Steps         []queueStep
}

// What a step does.
const (
	enqueues = "enqueue"
	many     = "many"  // EnqueueMany, of various jobs
	inTx     = "in tx" // EnqueueTx
	cancels  = "cancel"
	givesUp  = "give up" // Discard
	pauses   = "pause"
	closes   = "close"
)

// How attempts of a job fail, before one does not.
const (
	returns  = "error"
	panics   = "panic"
	timesOut = "timeout"
	discards = "discard"
	drops    = "drop"   // queue.Cancel
	snoozes  = "snooze" // for a while, at no cost of an attempt
)

type queueStep struct {
	Do       string
	Rollback bool `json:",omitempty"` // of EnqueueTx; of many: the other way round
	Job      queueJob
}

// queueJob is what becomes of a job. A group's number is how many of it may run at once.
type queueJob struct {
	Task     string `json:",omitempty"` // its name
	Group    int    `json:",omitempty"`
	Unique   int    `json:",omitempty"`
	Tx       bool   `json:",omitempty"` // a handler of HandleTx
	Fails    int    `json:",omitempty"` // so many attempts
	How      string
	Attempts int
	Work     time.Duration
	Delay    time.Duration `json:",omitempty"`
	Priority int16         `json:",omitempty"`
}

// dies reports that none of the job's attempts succeeds.
func (j queueJob) dies() bool {
	return j.How != snoozes && !j.drops() && (j.Fails >= j.Attempts || j.Fails > 0 && j.How == discards)
}

// drops reports that the job's first attempt cancels it.
func (j queueJob) drops() bool { return j.Fails > 0 && j.How == drops }

var queueTables = []string{"dblock_queue_job", "dblock_queue_ready", "dblock_queue_claim", "dblock_queue_key", "dblock_queue_unique", "dblock_member"}

// What happens to the processes of a program.
const (
	calm = iota
	serverFaults
	processFaults // all processes but the first one may be killed or frozen
)

func drawQueue(with int) func(*rapid.T) queueProgram {
	return func(t *rapid.T) queueProgram {
		steps := rapid.SliceOfN(rapid.Custom(drawQueueStep), 1, 3)
		callers := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) queueCaller {
			return queueCaller{
				Copies: oneOf(t, "copies", 1, 2, 4),
				Times:  oneOf(t, "times", 1, 2, 4),
				Steps:  steps.Draw(t, "steps"),
			}
		}), 1, 2)
		fewest := 1
		if with == processFaults {
			fewest = 2
		}
		p := queueProgram{Processes: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) queueProcess {
			return queueProcess{Handlers: oneOf(t, "handlers", 1, 4, 20), Callers: callers.Draw(t, "callers")}
		}), fewest, 3).Draw(t, "processes")}
		if with == serverFaults {
			p.Faults = drawFaults(t, queueTables)
		}
		for i := range p.Processes {
			one := &p.Processes[i]
			if with == processFaults {
				one.TTL = queueTTL
			}
			if with == processFaults && i > 0 {
				after := oneOf(t, "after", 20*time.Millisecond, 60*time.Millisecond, 150*time.Millisecond)
				*oneOf(t, "end", &one.Killed, &one.Frozen) = after
			}
		}
		return p
	}
}

func drawQueueStep(t *rapid.T) queueStep {
	s := queueStep{
		Do:       oneOf(t, "do", enqueues, enqueues, many, inTx, cancels, givesUp, pauses, closes),
		Rollback: rapid.IntRange(0, 3).Draw(t, "rollback") == 3,
		Job: queueJob{
			Group:    rapid.IntRange(0, 3).Draw(t, "group"),
			Unique:   max(rapid.IntRange(-3, 3).Draw(t, "unique"), 0),
			Tx:       rapid.Bool().Draw(t, "tx"),
			Fails:    max(rapid.IntRange(-2, 3).Draw(t, "fails"), 0),
			How:      oneOf(t, "how", returns, panics, timesOut, discards, drops, snoozes),
			Attempts: rapid.IntRange(2, 3).Draw(t, "attempts"),
			Work:     oneOf(t, "work", 0, time.Millisecond, 5*time.Millisecond),
			Delay:    oneOf(t, "delay", 0, 0, 30*time.Millisecond, 100*time.Millisecond),
			Priority: int16(rapid.IntRange(-1, 1).Draw(t, "priority")),
		},
	}
	if s.Job.Group == 1 { // one after the other: each takes as long as it fails
		s.Job.Fails = min(s.Job.Fails, 1)
	}
	s.Job.Tx = s.Job.Tx && s.Job.How != timesOut
	return s
}
