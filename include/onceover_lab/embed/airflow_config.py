"""The configuration of the embedded Airflow, as text. Nothing here starts or reads anything.

Invariant: the server listens on loopback only, nothing is reported to anybody but by a section that a person
has added, and every secret is random and stays in files that only their owner can read.
"""

from __future__ import annotations

import base64
import configparser
import io
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from onceover.errors import UsageError
from onceover_lab.embed.ports import LOOPBACK

USERNAME: Final = "admin"
CONFIG_FILE: Final = "airflow.cfg"
DATABASE_FILE: Final = "airflow.db"
# SQLite has one writer at a time, and the scheduler writes for long on a busy machine: behind Python's 5 s a
# click in the browser was answered with an error of the server.
DATABASE_PATIENCE_S: Final = 60
PASSWORDS_FILE: Final = "passwords.json"
PARALLELISM: Final = 8
# A `forever` run holds a slot as long as it runs; six of them leave two for everything else, of which audits
# that schedules begin take one. The variables
# are those of onceover_airflow.starting.pools, which is not for the process that starts Airflow.
POOL_VARIABLE: Final = "ONCEOVER_COPY_POOL"
SLOTS_VARIABLE: Final = "ONCEOVER_COPY_SLOTS"
COPY_POOL: Final = "onceover_copies"
COPY_SLOTS: Final = 6
AUDIT_POOL_VARIABLE: Final = "ONCEOVER_AUDIT_POOL"
AUDIT_POOL: Final = "onceover_audits"
AUDIT_SLOTS: Final = 1
# Seconds until a new or changed DAG or flow file is seen. Every look costs a fork and a third of a
# second of CPU, which on a small machine the copying would miss.
DAG_REFRESH_S: Final = 15
# By section and key; docker-compose.yaml and docker/kubernetes say the same, and a test compares them.
PATIENCE: Final[Mapping[str, Mapping[str, int]]] = {
    "workers": {
        # Seconds. 5 by default, which a server that has just started misses where Spark starts beside it: the
        # task then fails.
        "execution_api_timeout": 30,
        # A task is ended when it could not tell Airflow's server so often in a row that it lives, which it
        # tries every 5 s at most: half an hour. By default 3, and a copy ends 40 s behind the server.
        "max_failed_heartbeats": 360,
    },
    # Seconds. The scheduler gives a task up that it has not heard of for as long, and has it tried again: a
    # copy that lives is taken over then. By default 300. Not longer than usual outages: of a task whose
    # supervisor was killed nothing else tells, and its copy ends soon behind it.
    "scheduler": {"task_instance_heartbeat_timeout": 600},
}
# Names that Airflow does not hide by itself in a Connection's extra (measured, 3.3.2).
SENSITIVE_NAMES: Final = "jaas_config,key_pem,oauthbearer_config,keystore_key"
_HEAD: Final = (
    "# Written anew at every start of Airflow; sections of your own, such as [openlineage], stay.\n"
)
_JWT_BYTES: Final = 64
_FERNET_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class AirflowSecrets:
    """What must stay the same over restarts of one Airflow home. ``repr`` shows none of it."""

    fernet_key: str
    jwt_secret: str
    api_secret: str

    def __repr__(self) -> str:
        return "AirflowSecrets(***)"

    @classmethod
    def generate(cls) -> AirflowSecrets:
        """Return new random secrets."""
        fernet = base64.urlsafe_b64encode(secrets.token_bytes(_FERNET_BYTES)).decode()
        return cls(fernet, secrets.token_urlsafe(_JWT_BYTES), secrets.token_urlsafe(_FERNET_BYTES))

    @classmethod
    def read(cls, config: Path) -> AirflowSecrets:
        """Return the secrets of an existing configuration, or new ones when there is none.

        Keeping the Fernet key matters: stored Connections can be read with it alone.

        Raises:
            UsageError: the file is damaged; its keys are not replaced unasked.
        """
        if not config.exists():
            return cls.generate()
        parser = configparser.ConfigParser(interpolation=None)
        try:
            parser.read(config, encoding="utf-8")
            return cls(
                parser["core"]["fernet_key"], parser["api_auth"]["jwt_secret"], parser["api"]["secret_key"]
            )
        except (configparser.Error, KeyError, UnicodeDecodeError) as error:
            raise UsageError(
                "Airflow's configuration is damaged, and without its keys Connections cannot be read",
                where=str(config),
                expected="core.fernet_key, api_auth.jwt_secret and api.secret_key",
                seen=type(error).__name__,
                resolve="repair the file, put it back from a copy, or give up its Connections and runs: "
                f"remove {config.parent}; then start again",
            ) from None


def render_config(
    home: Path, *, dags: Path, plugins: Path, port: int, secret: AirflowSecrets, found: str = ""
) -> str:
    """Return ``airflow.cfg``: SQLite, LocalExecutor, one API worker, everything below ``home``.

    Args:
        found: the configuration so far, of which sections stay that are not written here.
    """
    url = f"http://{LOOPBACK}:{port}"
    sections: Mapping[str, Mapping[str, object]] = {
        "core": {
            "dags_folder": dags,
            "plugins_folder": plugins,
            "load_examples": False,
            "executor": "LocalExecutor",
            "parallelism": PARALLELISM,
            "fernet_key": secret.fernet_key,
            "execution_api_server_url": f"{url}/execution/",
            "simple_auth_manager_users": f"{USERNAME}:admin",
            "simple_auth_manager_passwords_file": home / PASSWORDS_FILE,
            "simple_auth_manager_all_admins": False,
            "sensitive_var_conn_names": SENSITIVE_NAMES,
        },
        "database": {
            "sql_alchemy_conn": f"sqlite:///{home / DATABASE_FILE}?timeout={DATABASE_PATIENCE_S}",
            "load_default_connections": False,
        },
        "logging": {"base_log_folder": home / "logs", "colored_console_log": False},
        "api": {
            "host": LOOPBACK,
            "port": port,
            "base_url": url,
            "workers": 1,
            "secret_key": secret.api_secret,
            "expose_config": False,
        },
        "api_auth": {"jwt_secret": secret.jwt_secret},
        "dag_processor": {
            "refresh_interval": DAG_REFRESH_S,
            "min_file_process_interval": DAG_REFRESH_S,
        },
        "usage_data_collection": {"enabled": False},
        **PATIENCE,
    }
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(found)
    for name in sections:
        parser.remove_section(name)
    # "%" starts an interpolation when Airflow reads the file.
    parser.read_dict(
        {
            name: {key: str(value).replace("%", "%%") for key, value in options.items()}
            for name, options in sections.items()
        }
    )
    text = io.StringIO()
    parser.write(text)
    return _HEAD + text.getvalue()
