package main

import (
	"slices"

	"github.com/dblock-go/dblock/bench"
)

// scenarios are dblock's own and those of its peers.
func scenarios() []bench.Scenario { return slices.Concat(bench.Scenarios(), peers()) }

// peers has a line for each peer.
func peers() []bench.Scenario {
	return slices.Concat(
		redislockScenarios(),
		etcdScenarios(),
		handWritten(),
		riverScenarios(),
		gueScenarios(),
	)
}
