// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/util/cert"
)

const (
	certificateFile = "cert.pem"
	keyFile         = "key.pem"
)

// serve serves a directory over HTTPS with the certificate in it, and prints its address.
func serve(ctx context.Context, dir string) error {
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, certificateFile), filepath.Join(dir, keyFile))
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler: http.FileServer(http.Dir(dir)), ReadHeaderTimeout: 10 * time.Second,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
	}
	fmt.Println("https://" + listener.Addr().String())
	go func() {
		<-ctx.Done()
		_ = server.Close()
	}()
	return server.ServeTLS(listener, "", "")
}

// startServer starts it as a process, which ends with ctx, and returns its address.
func startServer(ctx context.Context, dir string) (string, error) {
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		return "", err
	}
	for name, content := range map[string][]byte{certificateFile: certificate, keyFile: key} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return "", err
		}
	}
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	command := exec.CommandContext(ctx, self)
	command.Env = append(os.Environ(), serveVariable+"="+dir)
	command.Stderr = os.Stderr
	out, err := command.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := command.Start(); err != nil {
		return "", err
	}
	address, err := bufio.NewReader(out).ReadString('\n')
	return strings.TrimSpace(address), err
}
