package main

import (
	"context"
	"slices"

	"github.com/dblock-go/dblock/bench"
	"github.com/dblock-go/dblock/internal/devdb"
)

// scenarios are dblock's own and those of its peers.
func scenarios() []bench.Scenario { return slices.Concat(bench.Scenarios(), peers()) }

// peers has a line for each peer.
func peers() []bench.Scenario {
	return slices.Concat(
		redislockScenarios(),
		etcdScenarios(),
		pgxScenarios(),
		sqlScenarios(),
		riverScenarios(),
		gueScenarios(),
	)
}

// databaseConns are the numbers of database connections that every peer is tried with, as dblock's
// own sales are. It runs with the best.
func databaseConns() []int { return []int{2, 4, 16, 64} }

// lockServer is the server beside the database that a peer's locks live on: one for each scenario
// that is open.
type lockServer struct {
	*devdb.Server
	durability string
}

// startLockServer starts one that is as durable as its makers deliver it, because that is how it is
// run for locks.
func startLockServer(ctx context.Context, kind devdb.Kind, durable bool, durability string) (*lockServer, error) {
	server, err := devdb.Start(ctx, kind, devdb.Options{Durable: durable})
	if err != nil {
		return nil, err
	}
	if server.PID() == 0 {
		durability = "set up by its owner, from " + server.Source
	}
	return &lockServer{server, durability}, nil
}

// about is what a report says of it.
func (s *lockServer) about() described {
	return described{string(s.Kind), s.Version + " (" + s.durability + ")"}
}

// described is a bench.Described.
type described struct{ engine, server string }

func (d described) Engine() string { return d.engine }
func (d described) Server() string { return d.server }
