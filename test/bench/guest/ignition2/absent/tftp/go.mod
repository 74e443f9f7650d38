module github.com/pin/tftp

go 1.26.0
