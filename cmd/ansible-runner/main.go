// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Command ansible-runner is the operator's sidecar: it runs playbooks on hosts for whoever asks on its Unix socket.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/pflag"

	"github.com/caplv/caplv/operator/ansible/runner"
	"github.com/caplv/caplv/operator/ansible/runner/server"
	"github.com/caplv/caplv/operator/logging"
	"github.com/caplv/caplv/operator/version"
)

func main() {
	o := &options{}
	o.addFlags(pflag.CommandLine)
	pflag.Parse()
	if o.showVersion {
		fmt.Println(version.String())
		return
	}
	log, flush, err := logging.New(o.logLevel, o.logFormat)
	if err != nil {
		fmt.Fprintln(os.Stderr, "ansible-runner:", err)
		os.Exit(2)
	}
	// For Ansible as well, whose temporary files are not all made for their owner alone.
	syscall.Umask(0o077)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	err = run(ctx, o, log)
	stop()
	if err != nil {
		log.Error(err, "Ansible-runner ended with an error")
	}
	flush()
	if err != nil {
		os.Exit(1)
	}
}

// run serves until ctx ends. Then it ends all runs first, so that whoever follows them is told.
func run(ctx context.Context, o *options, log logr.Logger) error {
	uids, err := o.complete()
	if err != nil {
		return err
	}
	o.runner.Log = log
	backend, err := runner.New(ctx, o.runner)
	if err != nil {
		return err
	}
	metrics := promhttp.HandlerFor(backend.Registry(), promhttp.HandlerOpts{})
	serverOptions := server.Options{Backend: backend, AllowedUIDs: uids, Log: log}
	failed := make(chan error, 2)
	if o.metricsAddress == "" {
		serverOptions.Metrics = metrics
	} else {
		closeMetrics, err := serveMetrics(o.metricsAddress, metrics, failed)
		if err != nil {
			backend.Stop()
			return fmt.Errorf("--metrics-addr: %w", err)
		}
		defer closeMetrics()
	}
	if err := os.MkdirAll(filepath.Dir(o.socket), 0o700); err != nil {
		backend.Stop()
		return fmt.Errorf("--socket: %w", err)
	}
	listener, err := server.Listen(o.socket, uids)
	if err != nil {
		backend.Stop()
		return fmt.Errorf("--socket: %w", err)
	}
	httpServer := server.New(serverOptions)
	go func() { failed <- httpServer.Serve(listener) }()
	log.Info("Starting ansible-runner", "version", version.String(), "socket", o.socket)
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	log.Info("Stopping ansible-runner")
	backend.Stop()
	shutdown, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	return errors.Join(err, httpServer.Shutdown(shutdown))
}

func serveMetrics(address string, handler http.Handler, failed chan<- error) (func(), error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", handler)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { failed <- s.Serve(listener) }()
	return func() { _ = s.Close() }, nil
}
