package mysqloptimistic

import (
	"database/sql/driver"

	"github.com/dblock-go/dblock/optimistic/internal/engine"
)

const (
	fixedText = 8 << 10 // more than a statement has without its rows
	termText  = 64      // more than the text around a parameter, and a number
)

// portions cuts the places of rows into those of statements that the server takes. A row that is too long has a statement of its own,
// as it has in Update.
func (b *batch) portions(places []int) (parts [][]int) {
	bytes := 0
	for i, place := range places {
		row := b.weight(place)
		if i == 0 || b.p.Most > 0 && bytes+row > b.p.Most {
			parts, bytes = append(parts, nil), fixedText
		}
		last := len(parts) - 1
		parts[last] = append(parts[last], place)
		bytes += row
	}
	return parts
}

// weight is at least what a row adds to the statement that writes it, in any protocol.
func (b *batch) weight(place int) int {
	r := b.rows[place]
	key := weightOf(r.Key)
	total := key
	for j, name := range b.s.Names {
		total += key + weightOf(r.Set[name]) + len(b.s.Columns[j].Name)
	}
	if b.p.Kind == engine.Timestamp || b.p.Kind == engine.UUID {
		total += key + termText
	}
	return total
}

// weightOf doubles the bytes of a value: the driver may escape each.
func weightOf(value any) int {
	plain, err := driver.DefaultParameterConverter.ConvertValue(value)
	if err != nil {
		return termText
	}
	switch v := plain.(type) {
	case string:
		return termText + 2*len(v)
	case []byte:
		return termText + 2*len(v)
	}
	return termText
}
