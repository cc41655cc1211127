package bench

import "encoding/json"

// result is what came out of one round of one scenario.
type result struct {
	Sample
	cost  cost
	entry *entry
	suite *suite
	round int
	ratio *float64 // to the first scenario of the same round; nil: that one did not finish it, or did nothing

	p99Ratio *float64 // the same of the latencies
}

// engine names the server that did the work, and says what it was.
func (r result) engine() (name, server string) {
	if w, ok := r.entry.load.(interface{ measures() any }); ok {
		if d, ok := w.measures().(Described); ok {
			return d.Engine(), d.Server()
		}
	}
	return string(r.suite.kind), r.suite.server.Version
}

// record is a result as JSON.
type record struct {
	Scenario     string           `json:"scenario"`
	Engine       string           `json:"engine"`
	Server       string           `json:"server"`
	Clients      int              `json:"clients"`
	Conns        int              `json:"conns"`
	Seconds      float64          `json:"seconds"`
	Round        int              `json:"round"`
	OK           int64            `json:"ok"`
	PerSecond    float64          `json:"ok_per_s"`
	Failed       map[string]int64 `json:"failed"`
	Latency      Latency          `json:"latency_ms"`
	RatioToFirst *float64         `json:"ratio_to_first"`
	P99Ratio     *float64         `json:"p99_ratio_to_first"`
	PerUnit      cost             `json:"per_ok"`
}

// printJSON prints all rounds that were finished.
func (r *benchmark) printJSON() error {
	records := []record{}
	for _, res := range r.results {
		engine, server := res.engine()
		records = append(records, record{
			Scenario: res.entry.Name, Engine: engine, Server: server,
			Clients: res.entry.env.Clients, Conns: res.entry.env.Conns,
			Seconds: res.Elapsed.Seconds(), Round: res.round,
			OK: res.OK, PerSecond: res.perSecond(), Failed: res.Failed, Latency: res.Latency,
			RatioToFirst: res.ratio, P99Ratio: res.p99Ratio, PerUnit: res.cost,
		})
	}
	out := json.NewEncoder(r.out)
	out.SetIndent("", "  ")
	return out.Encode(records)
}
