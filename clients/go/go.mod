module github.com/esker-log/esker/clients/go

go 1.24
