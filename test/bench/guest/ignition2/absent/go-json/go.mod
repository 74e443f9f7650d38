module github.com/ajeddeloh/go-json

go 1.26.0
