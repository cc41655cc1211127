// Package guardian runs a command so that none of its processes outlives the caller's right to run
// it: not if the caller is killed, not if it is stopped, and not if a process that the command
// started ignores SIGTERM.
//
// The caller's process starts a second one, the guardian, from its own executable. The guardian
// starts the command and is the parent of everything that the command leaves behind:
//
//	caller ── pipe ──▶ guardian ──▶ command ──▶ …
//
//	runs    until the command and all processes that it started have ended
//	asked   by the caller, by a signal, or because ValidUntil has passed: SIGTERM to all of them
//	killed  after Grace, Slack after ValidUntil, or as soon as the caller has died: SIGKILL until none is left
//
// On Linux the guardian finds every descendant, also one in another session or process group. On
// other Unix systems it ends the command's process group. Elsewhere there is no guardian: the
// command alone is ended.
//
// With a controlling terminal the command stays in the caller's process group. Ctrl-C, Ctrl-Z, fg,
// bg and pipelines then work as without the guardian. Without a terminal the command has a process
// group of its own.
package guardian
