"""Check of what systemd-logind does to a user's programs and memory when the user logs out."""

from __future__ import annotations

import pwd

from shmtensor.manager.monitor.checks.machine import Finding, Machine

LAST_SYSTEM_UID = 999
"""Users up to this uid are system users, whom logind leaves alone (SYS_UID_MAX)."""
_PLACES = ("usr/lib/systemd", "usr/local/lib/systemd", "run/systemd", "etc/systemd")  # the last one wins


def _settings(machine: Machine) -> dict[str, str]:
    """Return the settings of logind.conf(5) and its drop-ins."""
    files = {}
    main = [f"{place}/logind.conf" for place in _PLACES if machine.path(f"{place}/logind.conf").exists()]
    for place in _PLACES:
        for path in sorted(machine.path(f"{place}/logind.conf.d").glob("*.conf")):
            files[path.name] = f"{place}/logind.conf.d/{path.name}"
    found = {}
    for file in [*main[-1:], *(files[name] for name in sorted(files))]:
        for line in (machine.text(file) or "").splitlines():
            key, equals, value = line.partition("=")
            if equals and not line.lstrip().startswith(("#", ";")):
                found[key.strip()] = value.strip().lower()
    return found


def logout(machine: Machine) -> list[Finding]:
    """Check lingering, RemoveIPC and KillUserProcesses. Returns nothing for system users and without logind."""
    if machine.uid <= LAST_SYSTEM_UID or not machine.path("run/systemd/seats").exists():
        return []
    try:
        user = pwd.getpwuid(machine.uid).pw_name
    except KeyError:
        user = str(machine.uid)
    name, enable = "logout", f"`loginctl enable-linger {user}` prevents this"
    if machine.path(f"var/lib/systemd/linger/{user}").exists():
        return [Finding(name, "ok", f"user {user} lingers: managers and memory outlive the login session")]
    settings, lost = _settings(machine), ["the runtime directory under /run/user and user services"]
    if settings.get("RemoveIPC", "yes") in ("yes", "true", "on", "1"):
        lost.append("names in /dev/shm (RemoveIPC=yes)")
    if settings.get("KillUserProcesses", "no") in ("yes", "true", "on", "1"):
        lost.append("programs in the background and their manager (KillUserProcesses=yes)")
    return [
        Finding(
            name, "note", f"when the last login session of user {user} ends, these end too: {', '.join(lost)}", enable
        )
    ]


CHECKS = (logout,)
