// Package link passes on what package optimistic does for its drivers and does not export.
package link

import (
	"github.com/dblock-go/dblock/optimistic"
	"github.com/dblock-go/dblock/optimistic/internal/driver"
)

// NewTable makes the description of a table, whose statements are those of e.
func NewTable[V, DB any](
	e driver.Driver[DB], table, key string, version optimistic.Version[V],
) (*optimistic.Table[V, DB], error) {
	t := new(optimistic.Table[V, DB])
	if err := driver.Describe(t, e, table, key, version); err != nil {
		return nil, err
	}
	return t, nil
}
