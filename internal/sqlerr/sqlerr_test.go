package sqlerr

import (
	"errors"
	"testing"

	"github.com/dblock-go/dblock"
)

// row is what a code means: for a statement that may have written, for one that left nothing
// written, and the public error of the former.
type row struct {
	maybeWritten, unwritten Class
	public                  error
}

func (r row) check(t *testing.T, code any, of func(unwritten bool) Class) {
	t.Helper()
	if got := of(false); got != r.maybeWritten {
		t.Errorf("%v: it is %v, want %v", code, got, r.maybeWritten)
	}
	if got := of(true); got != r.unwritten {
		t.Errorf("%v: it is %v if nothing was written, want %v", code, got, r.unwritten)
	}
	if got := Public(of(false)); !errors.Is(got, r.public) {
		t.Errorf("%v: the public error is %v, want %v", code, got, r.public)
	}
}

// TestOfState has a row for each SQLSTATE and each class of SQLSTATEs that the tables hold.
func TestOfState(t *testing.T) {
	t.Parallel()
	rows := map[string]row{
		"23505": {Duplicate, Duplicate, nil},
		"25006": {Unavailable, Unavailable, dblock.ErrUnavailable},
		"26000": {Unavailable, Unavailable, dblock.ErrUnavailable},
		"3F000": {NoSchema, NoSchema, dblock.ErrSchema},
		"40001": {Retryable, Retryable, dblock.ErrConflict},
		"40P01": {Retryable, Retryable, dblock.ErrConflict},
		"42501": {NotPermitted, NotPermitted, dblock.ErrPermission},
		"42P01": {NoSchema, NoSchema, dblock.ErrSchema},
		"53200": {Overloaded, Overloaded, dblock.ErrOverloaded},
		"55P03": {Busy, Busy, dblock.ErrBusy},
		"57014": {Busy, Busy, dblock.ErrBusy},
		"00":    {Unclassified, Unclassified, nil},
		"01":    {Unclassified, Unclassified, nil},
		"02":    {Unclassified, Unclassified, nil},
		"03":    {Unclassified, Unclassified, nil},
		"08":    {Unresolved, Unavailable, dblock.ErrOutcomeUnknown},
		"09":    {Unclassified, Unclassified, nil},
		"0A":    {Unclassified, Unclassified, nil},
		"0B":    {Unclassified, Unclassified, nil},
		"0F":    {Unclassified, Unclassified, nil},
		"0L":    {Unclassified, Unclassified, nil},
		"0P":    {Unclassified, Unclassified, nil},
		"0Z":    {Unclassified, Unclassified, nil},
		"20":    {Unclassified, Unclassified, nil},
		"21":    {Unclassified, Unclassified, nil},
		"22":    {BadInput, BadInput, nil},
		"23":    {BadInput, BadInput, nil},
		"24":    {Unclassified, Unclassified, nil},
		"25":    {Unclassified, Unclassified, nil},
		"26":    {Unclassified, Unclassified, nil},
		"27":    {Unclassified, Unclassified, nil},
		"28":    {Unclassified, Unclassified, nil},
		"2B":    {Unclassified, Unclassified, nil},
		"2D":    {Unclassified, Unclassified, nil},
		"2F":    {Unclassified, Unclassified, nil},
		"34":    {Unclassified, Unclassified, nil},
		"38":    {Unclassified, Unclassified, nil},
		"39":    {Unclassified, Unclassified, nil},
		"3B":    {Unclassified, Unclassified, nil},
		"3D":    {Unclassified, Unclassified, nil},
		"3F":    {Unclassified, Unclassified, nil},
		"40":    {Unclassified, Unclassified, nil},
		"42":    {Unclassified, Unclassified, nil},
		"44":    {Unclassified, Unclassified, nil},
		"53":    {Unavailable, Unavailable, dblock.ErrUnavailable},
		"54":    {Unclassified, Unclassified, nil},
		"55":    {Unclassified, Unclassified, nil},
		"57P05": {Unavailable, Unavailable, dblock.ErrUnavailable},
		"57":    {Unresolved, Unavailable, dblock.ErrOutcomeUnknown},
		"58":    {Unresolved, Unavailable, dblock.ErrOutcomeUnknown},
		"72":    {Unclassified, Unclassified, nil},
		"F0":    {Unclassified, Unclassified, nil},
		"HV":    {Unclassified, Unclassified, nil},
		"P0":    {BadInput, BadInput, nil},
		"XX":    {Unclassified, Unclassified, nil},

		// What a trigger chooses, and what is too short.
		"45000": {BadInput, BadInput, nil}, "MY001": {BadInput, BadInput, nil}, "X": {BadInput, BadInput, nil}, "": {BadInput, BadInput, nil},
	}
	for code, want := range rows {
		want.check(t, code, func(unwritten bool) Class { return OfState(code, unwritten) })
	}
	for code := range states {
		if _, ok := rows[code]; !ok {
			t.Errorf("%s has no row", code)
		}
	}
	for class := range stateClasses {
		if _, ok := rows[class]; !ok {
			t.Errorf("class %s has no row", class)
		}
	}
}

// TestOfNumber has a row for each number that the table holds.
func TestOfNumber(t *testing.T) {
	t.Parallel()
	rows := map[uint16]row{
		1020: {Retryable, Retryable, dblock.ErrConflict},
		1213: {Retryable, Retryable, dblock.ErrConflict},
		3101: {Retryable, Retryable, dblock.ErrConflict},
		1205: {Busy, Busy, dblock.ErrBusy},
		3572: {Busy, Busy, dblock.ErrBusy},
		1206: {Overloaded, Overloaded, dblock.ErrOverloaded},
		1044: {NotPermitted, NotPermitted, dblock.ErrPermission},
		1142: {NotPermitted, NotPermitted, dblock.ErrPermission},
		1143: {NotPermitted, NotPermitted, dblock.ErrPermission},
		1227: {NotPermitted, NotPermitted, dblock.ErrPermission},
		1370: {NotPermitted, NotPermitted, dblock.ErrPermission},
		1317: {Unresolved, Busy, dblock.ErrOutcomeUnknown},
		1969: {Unresolved, Busy, dblock.ErrOutcomeUnknown},
		3024: {Unresolved, Busy, dblock.ErrOutcomeUnknown},
		1053: {Unresolved, Unavailable, dblock.ErrOutcomeUnknown},
		1180: {Unresolved, Unavailable, dblock.ErrOutcomeUnknown},
		1927: {Unresolved, Unavailable, dblock.ErrOutcomeUnknown},
		3169: {Unresolved, Unavailable, dblock.ErrOutcomeUnknown},
		4031: {Unavailable, Unavailable, dblock.ErrUnavailable},
		1040: {Unavailable, Unavailable, dblock.ErrUnavailable},
		1045: {Unavailable, Unavailable, dblock.ErrUnavailable},
		1047: {Unavailable, Unavailable, dblock.ErrUnavailable},
		1129: {Unavailable, Unavailable, dblock.ErrUnavailable},
		1130: {Unavailable, Unavailable, dblock.ErrUnavailable},
		1203: {Unavailable, Unavailable, dblock.ErrUnavailable},
		1226: {Unavailable, Unavailable, dblock.ErrUnavailable},
		1698: {Unavailable, Unavailable, dblock.ErrUnavailable},
		1820: {Unavailable, Unavailable, dblock.ErrUnavailable},
		1862: {Unavailable, Unavailable, dblock.ErrUnavailable},
		3032: {Unavailable, Unavailable, dblock.ErrUnavailable},
		3118: {Unavailable, Unavailable, dblock.ErrUnavailable},
		3159: {Unavailable, Unavailable, dblock.ErrUnavailable},
		4151: {Unavailable, Unavailable, dblock.ErrUnavailable},
		1290: {Unavailable, Unavailable, dblock.ErrUnavailable},
		1792: {Unavailable, Unavailable, dblock.ErrUnavailable},
		1836: {Unavailable, Unavailable, dblock.ErrUnavailable},
		1874: {Unavailable, Unavailable, dblock.ErrUnavailable},
		3989: {Unavailable, Unavailable, dblock.ErrUnavailable},
		1021: {Unavailable, Unavailable, dblock.ErrUnavailable},
		1037: {Unavailable, Unavailable, dblock.ErrUnavailable},
		1038: {Unavailable, Unavailable, dblock.ErrUnavailable},
		1041: {Unavailable, Unavailable, dblock.ErrUnavailable},
		1114: {Unavailable, Unavailable, dblock.ErrUnavailable},
		1049: {NoSchema, NoSchema, dblock.ErrSchema},
		1054: {NoSchema, NoSchema, dblock.ErrSchema},
		1146: {NoSchema, NoSchema, dblock.ErrSchema},
		1062: {Duplicate, Duplicate, nil},
		1048: {BadInput, BadInput, nil},
		1153: {BadInput, BadInput, nil},
		1172: {BadInput, BadInput, nil}, 1242: {BadInput, BadInput, nil}, 1265: {BadInput, BadInput, nil}, 1292: {BadInput, BadInput, nil},
		1264: {BadInput, BadInput, nil}, 1365: {BadInput, BadInput, nil}, 3140: {BadInput, BadInput, nil},
		1364: {BadInput, BadInput, nil},
		1366: {BadInput, BadInput, nil},
		1406: {BadInput, BadInput, nil},
		1442: {BadInput, BadInput, nil},
		1451: {BadInput, BadInput, nil},
		1452: {BadInput, BadInput, nil},
		1644: {BadInput, BadInput, nil},
		1690: {BadInput, BadInput, nil},
		3819: {BadInput, BadInput, nil},
		4025: {BadInput, BadInput, nil},

		1: {Unclassified, Unclassified, nil}, 1105: {Unclassified, Unclassified, nil}, 3058: {Unclassified, Unclassified, nil}, 65535: {Unclassified, Unclassified, nil},
	}
	for number, want := range rows {
		want.check(t, number, func(unwritten bool) Class { return OfNumber(number, "HY000", unwritten) })
		for state, decided := range map[string]Class{"40001": Retryable, "45000": BadInput, "45XYZ": BadInput} {
			if want.unwritten == Retryable {
				decided = Retryable
			}
			row{decided, decided, Public(decided)}.check(t, state, func(unwritten bool) Class {
				return OfNumber(number, state, unwritten)
			})
		}
	}
	for number := range numbers {
		if _, ok := rows[number]; !ok {
			t.Errorf("%d has no row", number)
		}
	}
}

// TestWrap: an error matches the public error of its class, and wraps its cause. Without a public
// error it says what was done.
func TestWrap(t *testing.T) {
	t.Parallel()
	cause := errors.New("the server's")
	for c := Unclassified; c <= NotPermitted; c++ {
		err, public := Wrap(c, cause, "the order", "look it up"), Public(c)
		if !errors.Is(err, cause) || public != nil && !errors.Is(err, public) && !errors.Is(err, dblock.ErrSchema) {
			t.Errorf("%v: %v", c, err)
		}
		if got := c.Harmless(); got == Unresolved || c != Unresolved && got != c {
			t.Errorf("%v: harmless it is %v", c, got)
		}
		if got := c.OfHost(); got == NoSchema || c != NoSchema && got != c {
			t.Errorf("%v: on a table of the host's it is %v", c, got)
		}
		isContended := c == Retryable || c == Busy
		if IsContended(err) != isContended {
			t.Errorf("%v: is it contended? %v", c, !isContended)
		}
	}
}
