"""What routes ask for: the services, the caller's tenant, and validated path and query values."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Annotated, TypeVar, cast
from uuid import UUID

from fastapi import Depends, Path, Query, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BeforeValidator

from memory.errors import MnemorayError
from memory.records import AgentId, MemoryId, Partition, TenantId
from serve.middleware import decode_segment
from serve.problems import Forbidden, Unauthorized
from serve.schemas import Identifier, SkillName
from serve.services import Services

T = TypeVar("T")
_bearer = HTTPBearer(auto_error=False, description="the API key")


def services_of(request: Request) -> Services:
    return cast(Services, request.app.state.services)


def tenant_of(
    request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
) -> TenantId:
    """The tenant of the request's key."""
    settings = services_of(request).settings
    if (tenant := _owner(credentials, {**settings.api_keys, **settings.admin_keys})) is None:
        raise Unauthorized("this API key is not known here")
    return tenant


def administered_by(
    request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
) -> TenantId:
    """The tenant whose administrator asks."""
    settings = services_of(request).settings
    if (tenant := _owner(credentials, settings.admin_keys)) is not None:
        return tenant
    if _owner(credentials, settings.api_keys) is None:
        raise Unauthorized("this API key is not known here")
    raise Forbidden("this needs an administrator's key (MNEMORAY_ADMIN_KEYS, or secrets/admin_key of the data folder)")


def _owner(credentials: HTTPAuthorizationCredentials | None, keys: Mapping[str, str]) -> TenantId | None:
    """Keys are compared by digest, in constant time."""
    if credentials is None:
        raise Unauthorized("send the API key as 'Authorization: Bearer <key>'")
    given = hashlib.sha256(credentials.credentials.encode("utf-8", "replace")).digest()
    for key, tenant in keys.items():
        if hmac.compare_digest(hashlib.sha256(key.encode()).digest(), given):
            return TenantId(tenant)
    return None


Open = Annotated[Services, Depends(services_of)]
Tenant = Annotated[TenantId, Depends(tenant_of)]
Administered = Annotated[TenantId, Depends(administered_by)]
AgentPath = Annotated[Identifier, BeforeValidator(decode_segment), Path(description="the agent")]
SessionPath = Annotated[Identifier, BeforeValidator(decode_segment), Path(description="the session")]
SkillPath = Annotated[SkillName, BeforeValidator(decode_segment), Path(description="the skill's name")]
MemoryPath = Annotated[UUID, Path(description="the memory's id")]
UserQuery = Annotated[Identifier, Query(description="the user whom the agent serves")]
OptionalUser = Annotated[Identifier | None, Query(description="only this user's")]


class AgentScope:
    """One agent of the caller's tenant."""

    def __init__(self, agent_id: AgentPath, tenant_id: Tenant, services: Open) -> None:
        self.tenant_id = tenant_id
        self.agent_id = AgentId(agent_id)
        self.partition: Partition = services.acceptance.partition(tenant_id, self.agent_id)


Agent = Annotated[AgentScope, Depends()]


def memory_id(value: UUID) -> MemoryId:
    return MemoryId(value)


def raise_if_error(value: T | MnemorayError) -> T:
    if isinstance(value, MnemorayError):
        raise value
    return value
