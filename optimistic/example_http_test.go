package optimistic_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"

	"github.com/dblock-go/dblock/optimistic"
)

// note is a row, and how the service shows it.
type note struct {
	Text    string `json:"text"`
	version int64
}

// notes is in the place of a database: get is a SELECT, put an UPDATE … WHERE version = $1.
type notes struct {
	mu   sync.Mutex
	rows map[string]note
}

func (n *notes) get(name string) (note, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	row, found := n.rows[name]
	if !found {
		return row, &optimistic.NotFoundError{Table: "note", Key: name}
	}
	return row, nil
}

func (n *notes) put(name string, row note) (note, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	hit := int64(0)
	if n.rows[name].version == row.version {
		row.version++
		n.rows[name], hit = row, 1
	}
	return row, optimistic.Rows(hit, nil, optimistic.Row{Table: "note", Key: name})
}

func (n *notes) server() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /notes/{name}", func(w http.ResponseWriter, r *http.Request) {
		row, err := n.get(r.PathValue("name"))
		answer(w, row, err)
	})
	mux.HandleFunc("PUT /notes/{name}", func(w http.ResponseWriter, r *http.Request) {
		row, err := n.change(r)
		answer(w, row, err)
	})
	return mux
}

// change writes over what the client has seen, and over nothing else. It is not repeated: the
// client has to see what has changed.
func (n *notes) change(r *http.Request) (note, error) {
	name := r.PathValue("name")
	seen, err := optimistic.IfMatch(r.Header)
	if err != nil {
		return note{}, err
	}
	row, err := n.get(name)
	if err != nil {
		return note{}, err
	}
	if err := seen.Check(optimistic.ETag(row.version), optimistic.Row{Table: "note", Key: name}); err != nil {
		return note{}, err
	}
	if err := json.NewDecoder(r.Body).Decode(&row); err != nil {
		return note{}, err
	}
	return n.put(name, row) // by the version that was checked
}

func answer(w http.ResponseWriter, row note, err error) {
	if err != nil {
		http.Error(w, err.Error(), optimistic.HTTPStatus(err))
		return
	}
	w.Header().Set("ETag", optimistic.ETag(row.version))
	_ = json.NewEncoder(w).Encode(row)
}

// A service with GET and PUT: a client that would overwrite an unseen change gets an error.
func ExampleIfMatch() {
	n := &notes{rows: map[string]note{"shopping": {"milk", 1}}}
	server := httptest.NewServer(n.server())
	defer server.Close()

	send := func(method, path, ifMatch, body string) {
		r, _ := http.NewRequest(method, server.URL+path, strings.NewReader(body))
		if ifMatch != "" {
			r.Header.Set("If-Match", ifMatch)
		}
		resp, err := server.Client().Do(r)
		if err != nil {
			fmt.Println(err)
			return
		}
		_ = resp.Body.Close()
		fmt.Println(strings.TrimSpace(fmt.Sprintln(method, path, ifMatch, resp.StatusCode, resp.Header.Get("ETag"))))
	}
	send("GET", "/notes/shopping", "", "")
	send("PUT", "/notes/shopping", `"1"`, `{"text": "milk and bread"}`)
	send("PUT", "/notes/shopping", `"1"`, `{"text": "milk and tea"}`) // he has not seen the bread
	send("PUT", "/notes/shopping", "", `{"text": "tea"}`)
	send("PUT", "/notes/shopping", `W/"2"`, `{"text": "tea"}`)
	send("PUT", "/notes/other", `"1"`, `{"text": "tea"}`)
	fmt.Println(n.rows["shopping"].Text)
	// Output:
	// GET /notes/shopping  200 "1"
	// PUT /notes/shopping "1" 200 "2"
	// PUT /notes/shopping "1" 412
	// PUT /notes/shopping  428
	// PUT /notes/shopping W/"2" 412
	// PUT /notes/other "1" 404
	// milk and bread
}
