"""litelog replicates append-only logs as they grow, and restores them byte for byte.

Everything here is imported when it is first used. ``litelog/README.md`` says where to begin.
"""

from litelog.version import VERSION as __version__  # noqa: N811 - one version, under the name that programs expect

TYPE_CHECKING = False
if TYPE_CHECKING:
    from litelog.api.log_list import LogList
    from litelog.api.open_replica import open_replica
    from litelog.api.repair_log import repair_log
    from litelog.api.replicate import Replication, replicate
    from litelog.api.restore_log import restore_log
    from litelog.api.verify_replica import verify_replica
    from litelog.config.entries import LogConfig, ReplicaConfig
    from litelog.config.loading import load_config
    from litelog.config.models import Config
    from litelog.consumers.consumer import Consumer
    from litelog.errors import (
        ClosedError,
        ConfigError,
        ConsumerMovedError,
        ConsumerStateError,
        CorruptCommitError,
        CorruptionError,
        CorruptObjectError,
        DependencyError,
        DivergedError,
        DowngradeError,
        EncryptedError,
        FencedError,
        FinalSyncError,
        InvalidConfigError,
        LitelogError,
        LockedError,
        LogError,
        NoReplicaError,
        NothingToRestoreError,
        NotReplicatedError,
        NotYetAvailableError,
        OffsetJumpError,
        OtherLogError,
        OutputExistsError,
        PoisonedError,
        PrunedError,
        ReplicaGapError,
        SequenceConflictError,
        SequenceGapError,
        SourceError,
        SourceMissingError,
        StaleEpochError,
        StoreError,
        TruncatedError,
        UnknownFormatError,
        UnknownSchemeError,
        UnknownVersionError,
        WrongFormatError,
        WrongIdentityError,
    )
    from litelog.formats.columns import Columns, Record
    from litelog.formats.registry import register_format
    from litelog.log.append_service import AppendService
    from litelog.log.reader import LogReader
    from litelog.log.writer import LogWriter
    from litelog.reading.replica_records import ReplicaRecords
    from litelog.reading.retry_reader import RetryReader
    from litelog.replicator.replicator import Replicator
    from litelog.stores.mirror_acknowledgement import MirrorAcknowledgement
    from litelog.stores.registry import register_object_store

__all__ = [
    "AppendService",
    "ClosedError",
    "Columns",
    "Config",
    "ConfigError",
    "Consumer",
    "ConsumerMovedError",
    "ConsumerStateError",
    "CorruptCommitError",
    "CorruptObjectError",
    "CorruptionError",
    "DependencyError",
    "DivergedError",
    "DowngradeError",
    "EncryptedError",
    "FencedError",
    "FinalSyncError",
    "InvalidConfigError",
    "LitelogError",
    "LockedError",
    "LogConfig",
    "LogError",
    "LogList",
    "LogReader",
    "LogWriter",
    "MirrorAcknowledgement",
    "NoReplicaError",
    "NotReplicatedError",
    "NotYetAvailableError",
    "NothingToRestoreError",
    "OffsetJumpError",
    "OtherLogError",
    "OutputExistsError",
    "PoisonedError",
    "PrunedError",
    "Record",
    "ReplicaConfig",
    "ReplicaGapError",
    "ReplicaRecords",
    "Replication",
    "Replicator",
    "RetryReader",
    "SequenceConflictError",
    "SequenceGapError",
    "SourceError",
    "SourceMissingError",
    "StaleEpochError",
    "StoreError",
    "TruncatedError",
    "UnknownFormatError",
    "UnknownSchemeError",
    "UnknownVersionError",
    "WrongFormatError",
    "WrongIdentityError",
    "__version__",
    "load_config",
    "open_replica",
    "register_format",
    "register_object_store",
    "repair_log",
    "replicate",
    "restore_log",
    "verify_replica",
]

_MODULES = {
    "AppendService": "litelog.log.append_service",
    "Columns": "litelog.formats.columns",
    "Config": "litelog.config.models",
    "Consumer": "litelog.consumers.consumer",
    "LogConfig": "litelog.config.entries",
    "LogList": "litelog.api.log_list",
    "LogReader": "litelog.log.reader",
    "LogWriter": "litelog.log.writer",
    "MirrorAcknowledgement": "litelog.stores.mirror_acknowledgement",
    "Record": "litelog.formats.columns",
    "ReplicaConfig": "litelog.config.entries",
    "ReplicaRecords": "litelog.reading.replica_records",
    "Replication": "litelog.api.replicate",
    "RetryReader": "litelog.reading.retry_reader",
    "Replicator": "litelog.replicator.replicator",
    "load_config": "litelog.config.loading",
    "open_replica": "litelog.api.open_replica",
    "register_format": "litelog.formats.registry",
    "register_object_store": "litelog.stores.registry",
    "repair_log": "litelog.api.repair_log",
    "replicate": "litelog.api.replicate",
    "restore_log": "litelog.api.restore_log",
    "verify_replica": "litelog.api.verify_replica",
    **{name: "litelog.errors" for name in __all__ if name.endswith("Error")},
}
"""The module that is imported when a name is first used."""

if not TYPE_CHECKING:  # for a type checker, a module with such a function would have every name

    def __getattr__(name):
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
        from importlib import import_module  # noqa: PLC0415 - not needed to import this package

        value = globals()[name] = getattr(import_module(_MODULES[name]), name)
        return value

    def __dir__():
        return sorted({*globals(), *__all__})
