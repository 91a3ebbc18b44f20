#!/bin/sh
# Runs once in PostgreSQL's image, when the folder of the database is new: a standby may follow, and
# commits wait for it.
set -eu

# Connections of standby servers are not among those to "all" databases.
echo "host replication $POSTGRES_USER all scram-sha-256" >>"$PGDATA/pg_hba.conf"

# This counts from the next start on, which follows; a commit before would wait for a standby in vain.
psql --username="$POSTGRES_USER" --dbname="$POSTGRES_DB" \
    --command="ALTER SYSTEM SET synchronous_standby_names = 'standby'"
