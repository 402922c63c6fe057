"""An operator on kopf, like the first one of kopf's guide: a note, copied to a ConfigMap.

    kopf run --standalone --namespace NAMESPACE kopf_operator.py

It uses most of kopf's features for one kind: handlers of creation, of one field, of deletion (by a
finalizer), of events, a timer, a daemon, an index, retries, adoption, posted events.
"""

import logging
from contextlib import suppress
from typing import Any

import kopf
from kubernetes import client, config
from kubernetes.client.exceptions import ConflictException

NOTES = ("peers.navarchos.example.com", "v1", "notes")


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    config.load_kube_config()
    settings.posting.loggers = True
    settings.posting.level = logging.INFO
    settings.watching.server_timeout = 2  # watches end and begin again all the time


@kopf.index("configmaps", labels={"written-by": "kopf"})
def copies(name: str, body: kopf.Body, **_: Any) -> dict[str, str]:
    return {name: body["data"]["text"]}


@kopf.on.create(*NOTES)
def write(
    spec: kopf.Spec, name: str, namespace: Any, body: kopf.Body, retry: int, **_: Any
) -> dict[str, Any]:
    if not spec.get("text"):
        raise kopf.PermanentError("a note needs a text")
    if retry == 0:
        raise kopf.TemporaryError("not at the first try", delay=0.1)
    child: Any = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"written-by": "kopf"}},
        "data": {"text": spec["text"]},
    }
    kopf.adopt(child)
    made: Any = client.CoreV1Api().create_namespaced_config_map(namespace, child)
    kopf.info(body, reason="Written", message=f"wrote {len(spec['text'])} characters")
    return {"child": made.metadata.name, "tries": retry + 1}


@kopf.on.field(*NOTES, field="spec.text")
def rewrite(old: Any, new: Any, name: str, namespace: Any, **_: Any) -> dict[str, Any]:
    if old is None:
        return {"from": None}  # `write` handles a new note
    patch = {"data": {"text": new}}
    client.CoreV1Api().patch_namespaced_config_map(name, namespace, patch)
    return {"from": old}


@kopf.on.delete(*NOTES)
def say_goodbye(name: str, namespace: Any, **indices: Any) -> None:
    (text,) = indices["copies"][name]
    left: Any = {"metadata": {"name": f"{name}-was"}, "data": {"text": text}}
    with suppress(ConflictException):  # kopf calls the handler again if it sees its own write late
        client.CoreV1Api().create_namespaced_config_map(namespace, left)


@kopf.timer(*NOTES, interval=0.2)
def tick(status: kopf.Status, patch: kopf.Patch, **_: Any) -> None:
    patch.status["ticks"] = status.get("ticks", 0) + 1


@kopf.daemon(*NOTES)
async def stay(stopped: kopf.DaemonStopped, logger: kopf.Logger, **_: Any) -> None:
    logger.info("began to stay")
    await stopped.wait()
    logger.info("stayed until the end")


@kopf.on.event(*NOTES)
def look(event: kopf.RawEvent, name: str, logger: kopf.Logger, **_: Any) -> None:
    logger.info("saw %s of %s", event["type"], name)
