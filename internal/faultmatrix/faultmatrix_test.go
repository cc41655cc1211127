package faultmatrix

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/dblock-go/dblock/internal/testdb"
)

func TestMain(m *testing.M) {
	runAsWorker()
	flag.Parse()
	if !*reports {
		testdb.Main(m)
		return
	}
	if err := report(); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

// TestFaultsMatrix runs each fault once, engine by engine. No promise is broken, and each control
// breaks its own.
func TestFaultsMatrix(t *testing.T) {
	for _, kind := range testdb.Engines() {
		t.Run(string(kind), func(t *testing.T) {
			m, err := Measure(t.Context(), Options{Kinds: []Kind{kind}, Runs: 1, Logf: t.Logf})
			if err != nil {
				t.Fatal(err)
			}
			for _, text := range m.Problems() {
				t.Error(text)
			}
		})
	}
}
