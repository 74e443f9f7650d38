// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/caplv/caplv/operator/artifact/fault"
	"github.com/caplv/caplv/operator/artifact/fetch"
)

func invalid(format string, args ...any) *fault.Error {
	return fault.New(fault.InvalidCredentials, fault.Credentials, format, args...)
}

// passwordOf reads a Secret for basic authentication.
func passwordOf(secret map[string][]byte) (fetch.Credentials, *fault.Error) {
	if secret == nil {
		return fetch.Credentials{}, nil
	}
	c := fetch.Credentials{Username: text(secret, "username"), Password: text(secret, "password")}
	if c.Username == "" || c.Password == "" {
		return fetch.Credentials{}, invalid("the Secret needs the keys username and password")
	}
	return c, nil
}

// accessKeyOf reads a Secret for S3.
func accessKeyOf(secret map[string][]byte) (fetch.Credentials, *fault.Error) {
	if secret == nil {
		return fetch.Credentials{}, nil
	}
	first := func(keys ...string) string {
		for _, k := range keys {
			if v := text(secret, k); v != "" {
				return v
			}
		}
		return ""
	}
	c := fetch.Credentials{
		AccessKeyID: first("accessKeyID", "AWS_ACCESS_KEY_ID"), SecretAccessKey: first("secretAccessKey", "AWS_SECRET_ACCESS_KEY"),
		SessionToken: first("sessionToken", "AWS_SESSION_TOKEN"),
	}
	if c.AccessKeyID == "" || c.SecretAccessKey == "" {
		return fetch.Credentials{}, invalid("the Secret needs the keys accessKeyID and secretAccessKey, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
	}
	return c, nil
}

// text is a value without the line break that editors and "echo" leave at its end.
func text(secret map[string][]byte, key string) string {
	return strings.TrimRight(string(secret[key]), "\r\n")
}

// registryCredentials reads a Secret of the type kubernetes.io/dockerconfigjson, or one with username and password.
func registryCredentials(secret map[string][]byte, reference string) (fetch.Credentials, *fault.Error) {
	config, ok := secret[corev1.DockerConfigJsonKey]
	if !ok {
		c, err := passwordOf(secret)
		if err != nil {
			err.Message = "the Secret needs the key " + corev1.DockerConfigJsonKey + ", or the keys username and password"
		}
		return c, err
	}
	registry, _, _ := strings.Cut(reference, "/")
	return dockerConfig(config, registry)
}

// dockerAuth is one entry of a configuration of docker.
type dockerAuth struct {
	Username      string `json:"username"`
	Password      string `json:"password"`
	Auth          string `json:"auth"`
	IdentityToken string `json:"identitytoken"`
	RegistryToken string `json:"registrytoken"`
}

// dockerHub is the key under which docker keeps the credentials of its own registry.
const dockerHub = "https://index.docker.io/v1/"

// dockerConfig finds a registry's entry as docker does: by the exact key, then by the host that a key in the form of a URL has.
func dockerConfig(config []byte, registry string) (fetch.Credentials, *fault.Error) {
	var parsed struct {
		Auths map[string]dockerAuth `json:"auths"`
	}
	if json.Unmarshal(config, &parsed) != nil {
		return fetch.Credentials{}, invalid("%s of the Secret is not JSON as docker writes it", corev1.DockerConfigJsonKey)
	}
	wanted := registry
	if registry == "docker.io" || registry == "registry-1.docker.io" || registry == "index.docker.io" {
		wanted = dockerHub
	}
	entry, ok := parsed.Auths[wanted]
	names := slices.Sorted(maps.Keys(parsed.Auths))
	for _, name := range names {
		if !ok && hostOf(name) == hostOf(wanted) {
			entry, ok = parsed.Auths[name], true
		}
	}
	if !ok {
		return fetch.Credentials{}, invalid("the Secret has no credentials for the registry %s, only for: %s", registry, strings.Join(names, ", "))
	}
	return entry.credentials(registry)
}

func hostOf(key string) string {
	key = strings.TrimPrefix(strings.TrimPrefix(key, "https://"), "http://")
	host, _, _ := strings.Cut(key, "/")
	return host
}

func (a dockerAuth) credentials(registry string) (fetch.Credentials, *fault.Error) {
	c := fetch.Credentials{Username: a.Username, Password: a.Password, IdentityToken: a.IdentityToken, RegistryToken: a.RegistryToken}
	if a.Auth != "" {
		decoded, err := base64.StdEncoding.DecodeString(a.Auth)
		username, password, found := strings.Cut(string(decoded), ":")
		if err != nil || !found {
			return fetch.Credentials{}, invalid("the entry auth for the registry %s in the Secret is not USERNAME:PASSWORD in base64", registry)
		}
		c.Username, c.Password = username, strings.TrimRight(password, "\x00")
	}
	if c.IdentityToken != "" {
		// The user's name is a placeholder then.
		c.Username, c.Password = "", ""
	}
	if c == (fetch.Credentials{}) {
		return c, invalid("the entry for the registry %s in the Secret is empty; operators have no credential helpers", registry)
	}
	return c, nil
}
