package main

import (
	"context"

	"github.com/dblock-go/dblock/bench"
)

// benchCmd is `dblock bench`.
type benchCmd struct{ bench.Flags }

// Help is what `dblock bench --help` says beside the flags.
func (benchCmd) Help() string {
	return `Measures scenarios on a throwaway server of each kind that is found, with durable settings. Several run
interleaved, round by round, and each is held against the first within the same round:

  dblock bench seckill/advisory seckill/direct seckill/merge --clients 2000 --rounds 5
  dblock bench 'limit/*' --engine postgres
  dblock bench seckill/merge pgbench --file orders.sql --setup tables.sql

Servers come from DBLOCK_POSTGRES_URL and DBLOCK_MYSQL_DSN (databases of its own are made there, and
dropped), or else from the binaries on this machine (DBLOCK_POSTGRES_BIN, DBLOCK_MYSQLD).

Exit status 1: a scenario failed, or its result was wrong. The rounds until then are printed.`
}

// Validate refuses what makes no sense, before any server is started. Kong calls it.
func (c *benchCmd) Validate() error { return c.Check(bench.Scenarios()) }

// Run prints what was measured on standard output, and how it goes on standard error.
func (c *benchCmd) Run(ctx context.Context, std streams) error {
	return bench.Run(ctx, c.Flags, bench.Scenarios(), std.out, std.err)
}
