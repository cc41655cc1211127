// Package optimistic updates rows without holding a lock while somebody thinks: a row is read with its version, changed, and
// written only if it still has that version. Whoever comes second is told so, and nothing is overwritten unseen.
package optimistic
