"""Users and access rules of a running server, over Kafka's protocol.

Rule: the requests are those of Kafka's own tools (keys 29 to 31, 50 and 51), so any broker answers
them, those of Apache Kafka too; what a server refuses is a `KafkaFailed` with the server's words. A
password never leaves this process.
Must not know: flags, what is printed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from kledger.broker_client.broker_connections import BrokerConnections, KafkaFailed
from kledger.cli.command_config import read_client_file
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k29_describe_acls import (
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from kledger.gateway.wire.messages.k30_create_acls import (
    AclCreation,
    CreateAclsRequest,
    CreateAclsResponse,
)
from kledger.gateway.wire.messages.k31_delete_acls import (
    DeleteAclsFilter,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from kledger.gateway.wire.messages.k50_describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from kledger.gateway.wire.messages.k51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kledger.runtime.entropy import SystemEntropy
from kledger.security.acl_state import (
    AclFilter,
    AclRule,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from kledger.security.credentials import BY_CODE, BY_SASL_NAME, SALT_BYTES

CLIENT_ID: Final = "kledger-cli"


@contextmanager
def running_server(servers: str, command_config: Path | None) -> Iterator[BrokerConnections]:
    """Have connections to a server, as the user of a file with Kafka's client properties.

    Raises:
        CommandConfigMistake: the file cannot be used.
        ValueError: an address has no port.
    """
    security = read_client_file(command_config)
    with BrokerConnections(servers, security, client_id=CLIENT_ID) as brokers:
        yield brokers


class RunningUsers:
    """The SCRAM users of a running server; those of PLAIN are not in Kafka's protocol.

    A request of Kafka's protocol changes each user once, so every mechanism is a request.
    """

    def __init__(self, brokers: BrokerConnections) -> None:
        self._brokers = brokers

    async def listed(self) -> list[tuple[str, str, int]]:
        """Return user, mechanism and iterations of each credential."""
        request = DescribeUserScramCredentialsRequest(users=None)
        response = self._brokers.ask(request, DescribeUserScramCredentialsResponse)
        _check("users", response.error_code, response.error_message)
        found = []
        for result in response.results:
            _check(result.user, result.error_code, result.error_message)
            found += [
                (result.user, BY_CODE[each.mechanism].sasl_name, each.iterations)
                for each in result.credential_infos
            ]
        return sorted(found)

    async def set_password(
        self, user: str, mechanisms: Iterable[str], password: str, iterations: int
    ) -> None:
        """Add credentials, or replace them, one after the other. Raises KafkaFailed."""
        for each in mechanisms:
            scram, salt = BY_SASL_NAME[each], SystemEntropy().token(SALT_BYTES)
            upsertion = ScramCredentialUpsertion(
                name=user,
                mechanism=scram.code,
                iterations=iterations,
                salt=salt,
                salted_password=scram.salted_password(password, salt, iterations),
            )
            self._alter(AlterUserScramCredentialsRequest(upsertions=[upsertion]))

    async def remove(self, user: str, mechanisms: Iterable[str]) -> None:
        """Remove credentials, one after the other. Raises KafkaFailed."""
        for each in mechanisms:
            deletion = ScramCredentialDeletion(name=user, mechanism=BY_SASL_NAME[each].code)
            self._alter(AlterUserScramCredentialsRequest(deletions=[deletion]))

    def _alter(self, request: AlterUserScramCredentialsRequest) -> None:
        for each in self._brokers.ask(request, AlterUserScramCredentialsResponse).results:
            _check(each.user, each.error_code, each.error_message)


class RunningRules:
    """The access rules of a running server."""

    def __init__(self, brokers: BrokerConnections) -> None:
        self._brokers = brokers

    async def find(self, asked: AclFilter) -> list[AclRule]:
        """Return the rules that match a filter. Raises KafkaFailed."""
        request = DescribeAclsRequest(**_filter_fields(asked))
        response = self._brokers.ask(request, DescribeAclsResponse)
        _check("rules", response.error_code, response.error_message)
        return [
            AclRule(
                ResourcePattern(
                    ResourceType(resource.resource_type),
                    PatternType(resource.pattern_type),
                    resource.resource_name,
                ),
                each.principal,
                each.host,
                Operation(each.operation),
                Permission(each.permission_type),
            )
            for resource in response.resources
            for each in resource.acls
        ]

    async def create(self, rules: Iterable[AclRule]) -> None:
        """Create rules; those that exist stay as they are. Raises KafkaFailed."""
        creations = [
            AclCreation(
                resource_type=rule.pattern.resource_type,
                resource_name=rule.pattern.name,
                resource_pattern_type=rule.pattern.pattern_type,
                principal=rule.principal,
                host=rule.host,
                operation=rule.operation,
                permission_type=rule.permission,
            )
            for rule in rules
        ]
        request = CreateAclsRequest(creations=creations)
        for rule, result in zip(
            creations, self._brokers.ask(request, CreateAclsResponse).results, strict=True
        ):
            _check(rule.principal, result.error_code, result.error_message)

    async def delete(self, filters: Sequence[AclFilter]) -> None:
        """Delete the rules that match one of the filters. Raises KafkaFailed."""
        asked = [DeleteAclsFilter(**_filter_fields(each)) for each in filters]
        response = self._brokers.ask(DeleteAclsRequest(filters=asked), DeleteAclsResponse)
        for result in response.filter_results:
            _check("rules", result.error_code, result.error_message)
            for each in result.matching_acls:
                _check(each.principal, each.error_code, each.error_message)


def _filter_fields(asked: AclFilter) -> dict[str, Any]:
    """Return the fields of a filter in a request; see `gateway.acl_messages.RequestedFilter`."""
    return {
        "resource_type_filter": asked.resource_type,
        "resource_name_filter": asked.name,
        "pattern_type_filter": asked.pattern_type,
        "principal_filter": asked.principal,
        "host_filter": asked.host,
        "operation": asked.operation,
        "permission_type": asked.permission,
    }


def _check(what: str, code: int, message: str | None) -> None:
    if code != ErrorCode.NONE:
        raise KafkaFailed(f"{what}: {message}" if message else what, code)
