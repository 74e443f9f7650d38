// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package artifact

// Waiting is the number of callers that wait for a fetch.
func Waiting(c *Cache) int {
	c.flights.mu.Lock()
	defer c.flights.mu.Unlock()
	n := 0
	for _, f := range c.flights.flights {
		n += f.callers
	}
	return n
}
