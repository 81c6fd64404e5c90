"""Who may do what with the queue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from redrive.access.actors import Role
from redrive.systems.workflow.errors import AccessDenied

_NEEDED = {"view": Role.VIEWER, "retry": Role.OPERATOR, "archive": Role.OPERATOR, "clear": Role.ADMIN}


class AccessManager(Protocol):
    """What a queue asks; `RoleManager` is one, and so is any RBAC manager with this method."""

    async def check_permission(self, user_id: str, resource: str, action: str) -> bool: ...


class RoleManager:
    """Redrive's roles for named users: an operator retries and archives, an admin also clears."""

    def __init__(self, roles: Mapping[str, Role | str]) -> None:
        self._roles = {user: Role(role) for user, role in roles.items()}

    async def check_permission(self, user_id: str, resource: str, action: str) -> bool:
        role, needed = self._roles.get(user_id), _NEEDED.get(action)
        return resource == "dlq" and role is not None and needed is not None and role.allows(needed)


async def require(manager: AccessManager | None, user_id: str | None, operation: str) -> None:
    """AccessDenied unless the manager says yes. Without a manager, whoever holds the queue may."""
    if manager is None:
        return
    if user_id is None or not await manager.check_permission(user_id, "dlq", operation):
        raise AccessDenied(user_id, operation)
