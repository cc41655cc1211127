package faultmatrix

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
)

const processes = 2 // beside this one

func (e *env) config(n int) config {
	cfg := e.cfg
	cfg.N, cfg.Log = n, filepath.Join(e.dir, fmt.Sprint("worker-", n))
	return cfg
}

// start starts the worker of this process and the others.
func (e *env) start(ctx context.Context) (err error) {
	for range processes {
		if _, err := e.startChild(); err != nil {
			return err
		}
	}
	if e.worker, err = startWorker(ctx, e.config(0)); err != nil {
		return err
	}
	for _, c := range e.children {
		if err := c.wait(ctx, "ready"); err != nil {
			return err
		}
	}
	return nil
}

func (e *env) startChild() (*child, error) {
	e.started++
	c, err := startChild(e.program, e.config(e.started))
	if err == nil {
		e.children = append(e.children, c)
	}
	return c, err
}

// any is one of the other processes, at random.
func (e *env) any() *child { return e.children[rand.IntN(len(e.children))] }

// forget takes a process that has ended off the list.
func (e *env) forget(c *child) {
	for i, other := range e.children {
		if other == c {
			e.children = append(e.children[:i:i], e.children[i+1:]...)
			return
		}
	}
}

// kill kills a process, and starts another one instead.
func (e *env) kill(ctx context.Context, c *child) error {
	begin := uptime()
	c.kill()
	e.log.note(op{Kind: opKill, Worker: c.n, Begin: begin, End: uptime()})
	e.forget(c)
	return e.replace(ctx)
}

func (e *env) replace(ctx context.Context) error {
	c, err := e.startChild()
	if err != nil {
		return err
	}
	return c.wait(ctx, "ready")
}

// retire ends a process in good order, and starts another one instead.
func (e *env) retire(ctx context.Context, c *child) error {
	if err := errors.Join(c.send("stop"), c.wait(ctx, "stopped")); err != nil {
		return err
	}
	if err := errors.Join(c.send("end"), c.wait(ctx, "ended")); err != nil {
		return err
	}
	c.kill()
	e.forget(c)
	return e.replace(ctx)
}

// stopOps has all processes do no more than the jobs that are left.
func (e *env) stopOps(ctx context.Context) error {
	for _, c := range e.children {
		if err := c.send("stop"); err != nil {
			return err
		}
	}
	e.worker.stopOps()
	for _, c := range e.children {
		if err := c.wait(ctx, "stopped"); err != nil {
			return err
		}
	}
	return nil
}

// endChildren has the other processes close all and end.
func (e *env) endChildren(ctx context.Context) error {
	for _, c := range e.children {
		if err := c.send("end"); err != nil {
			return err
		}
	}
	for _, c := range e.children {
		if err := c.wait(ctx, "ended"); err != nil {
			return err
		}
		c.kill() // it has ended, or is about to
	}
	e.children = nil
	return nil
}

// history is all that the processes have logged.
func (e *env) history() (ops []op, err error) {
	files, err := filepath.Glob(filepath.Join(e.dir, "*"))
	if err != nil {
		return nil, err
	}
	for _, path := range files {
		some, err := readLog(path)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		ops = append(ops, some...)
	}
	return ops, nil
}
