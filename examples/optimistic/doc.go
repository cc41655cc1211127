// Package examples is services that update rows by their versions: with queries that sqlc has
// generated, with GORM and with ent. Its tests run them on real servers. It is a module of its own:
// a service that embeds dblock does not get its dependencies.
package examples

import (
	"context"

	"github.com/dblock-go/dblock/optimistic"
)

// Deposit adds an amount to an account, and returns what it has then.
type Deposit func(ctx context.Context, id, amount int64) (balance int64, err error)

// account is a row as errors name it.
func account(id, version int64) optimistic.Row {
	return optimistic.Row{Table: "account", Key: id, Expected: version}
}

// entry is what is added to one account.
type entry struct{ id, amount int64 }

// ordered are entries in the order of their accounts.
func ordered(a, b entry) [2]entry {
	if b.id < a.id {
		return [2]entry{b, a}
	}
	return [2]entry{a, b}
}
