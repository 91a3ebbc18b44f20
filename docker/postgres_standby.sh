#!/bin/sh
# A synchronous standby of the server at PRIMARY, in PostgreSQL's image: copies its folder at the
# first start, and follows it from then on.
set -eu

if [ ! -s "$PGDATA/PG_VERSION" ]; then
    pg_basebackup --dbname="host=$PRIMARY user=kledger application_name=standby" \
        --pgdata="$PGDATA" --checkpoint=fast --write-recovery-conf
fi
exec postgres
