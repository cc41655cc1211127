// Package conformance holds one suite of tests for each contract, which every engine runs against
// a real server. Only tests import it.
package conformance
