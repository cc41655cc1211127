// Package faultmatrix runs one workload under many faults and counts the promises that are broken.
// The workload is leases in each mode with fences and guarded writes, leaders, session locks, jobs
// and orders, all at once, in this process and in two child processes. Each run has its own
// database. A run also has a control: callers that do the same without dblock's protections, under
// the same fault. No code of dblock takes part in the checks: checkers read the log of each
// process, by the one clock of the machine, and the server's own tables.
//
// `make faults-report` makes docs/faults.md with it. All of the package is tests.
package faultmatrix
