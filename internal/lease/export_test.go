package lease

// Known counts the handles that the Lockers of a share know.
func Known[Of any](s *Share[Of]) int {
	h := &s.reconciler.handles
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.known)
}
