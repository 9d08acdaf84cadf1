"""KMIP's messages as PyKMIP writes them: what vectors/kmip holds.

`build/venv-kmip/bin/python tests/vectors/kmip_messages.py` prints them all; with `write` it writes the files anew.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kmip.core import attributes, enums, objects, secrets
from kmip.core.factories.attributes import AttributeFactory
from kmip.core.messages import contents, messages, payloads
from kmip.core.misc import KeyFormatType
from kmip.core.utils import BytearrayStream

DIRECTORY = Path(__file__).resolve().parents[2] / "vectors" / "kmip"
OPERATION = enums.Operation
VERSIONS = [(1, 4), (2, 0)]
# As long as an answer may be.
LONGEST = 1 << 16
KEY, NONCE, TAG, SEALED = (
    bytes(range(first, first + length)) for first, length in [(1, 32), (40, 12), (60, 16), (80, 32)]
)


def written(message: Any, version: tuple[int, int]) -> str:
    stream = BytearrayStream()
    message.write(stream, kmip_version=contents.protocol_version_to_kmip_version(contents.ProtocolVersion(*version)))
    return bytes(stream.buffer).hex()


def request(version: tuple[int, int], operation: enums.Operation, payload: Any) -> str:
    header = messages.RequestHeader(
        protocol_version=contents.ProtocolVersion(*version),
        maximum_response_size=contents.MaximumResponseSize(LONGEST),
        batch_count=contents.BatchCount(1),
    )
    item = messages.RequestBatchItem(operation=primitives_operation(operation), request_payload=payload)
    return written(messages.RequestMessage(request_header=header, batch_items=[item]), version)


def response(version: tuple[int, int], operation: enums.Operation, payload: Any, **result: Any) -> str:
    header = messages.ResponseHeader(
        protocol_version=contents.ProtocolVersion(*version),
        time_stamp=contents.TimeStamp(1_800_000_000),
        batch_count=contents.BatchCount(1),
    )
    item = messages.ResponseBatchItem(
        operation=primitives_operation(operation),
        result_status=contents.ResultStatus(result.get("status", enums.ResultStatus.SUCCESS)),
        result_reason=result.get("reason") and contents.ResultReason(result["reason"]),
        result_message=result.get("message") and contents.ResultMessage(result["message"]),
        response_payload=payload,
    )
    return written(messages.ResponseMessage(response_header=header, batch_items=[item]), version)


def primitives_operation(operation: enums.Operation) -> Any:
    return contents.Operation(operation)


def parameters() -> Any:
    return attributes.CryptographicParameters(
        block_cipher_mode=enums.BlockCipherMode.GCM,
        cryptographic_algorithm=enums.CryptographicAlgorithm.AES,
        tag_length=16,
    )


def key_attributes(state: bool) -> list[Any]:
    make = AttributeFactory().create_attribute
    usage = [enums.CryptographicUsageMask.ENCRYPT, enums.CryptographicUsageMask.DECRYPT]
    all_of_them = [
        make(enums.AttributeType.CRYPTOGRAPHIC_ALGORITHM, enums.CryptographicAlgorithm.AES),
        make(enums.AttributeType.CRYPTOGRAPHIC_LENGTH, 256),
        make(enums.AttributeType.CRYPTOGRAPHIC_USAGE_MASK, usage),
    ]
    return all_of_them + [make(enums.AttributeType.STATE, enums.State.ACTIVE)] * state


def requests(version: tuple[int, int]) -> Iterator[tuple[str, dict[str, Any], Any]]:
    """The operation, what is asked with it, and PyKMIP's payload."""
    yield (
        "Create",
        {},
        payloads.CreateRequestPayload(
            enums.ObjectType.SYMMETRIC_KEY, objects.TemplateAttribute(attributes=key_attributes(False))
        ),
    )
    yield "Activate", {"id": "k-17"}, payloads.ActivateRequestPayload(attributes.UniqueIdentifier("k-17"))
    names = ["Cryptographic Algorithm", "Cryptographic Length", "Cryptographic Usage Mask", "State"]
    yield "GetAttributes", {"id": "k-17"}, payloads.GetAttributesRequestPayload("k-17", names)
    functions = [enums.QueryFunction.QUERY_OPERATIONS]
    yield "Query", {}, payloads.QueryRequestPayload(functions)
    asked = [[2, 1], [2, 0], [1, 4]]
    spoken = [contents.ProtocolVersion(*one) for one in asked]
    yield "DiscoverVersions", {"versions": asked}, payloads.DiscoverVersionsRequestPayload(spoken)
    encrypted = payloads.EncryptRequestPayload("k-17", parameters(), KEY, NONCE)
    yield "Encrypt", {"id": "k-17", "key": KEY.hex(), "nonce": NONCE.hex()}, encrypted
    decrypted = payloads.DecryptRequestPayload("k-17", parameters(), SEALED, NONCE, auth_tag=TAG)
    yield "Decrypt", {"id": "k-17", "sealed": (NONCE + TAG + SEALED).hex()}, decrypted
    yield "Get", {"id": "k-17"}, payloads.GetRequestPayload("k-17", enums.KeyFormatType.RAW)


def symmetric_key(wrapped: bool = False) -> Any:
    information = objects.EncryptionKeyInformation("other", None) if wrapped else None
    wrapping = objects.KeyWrappingData(enums.WrappingMethod.ENCRYPT, information) if wrapped else None
    return secrets.SymmetricKey(
        objects.KeyBlock(
            key_format_type=KeyFormatType(enums.KeyFormatType.RAW),
            key_value=objects.KeyValue(objects.KeyMaterial(KEY)),
            cryptographic_algorithm=attributes.CryptographicAlgorithm(enums.CryptographicAlgorithm.AES),
            cryptographic_length=attributes.CryptographicLength(256),
            key_wrapping_data=wrapping,
        )
    )


def responses(version: tuple[int, int]) -> Iterator[tuple[str, str, Any, Any]]:
    """What it shows, the operation, PyKMIP's payload, and what is to be read of it."""
    kind = enums.ObjectType.SYMMETRIC_KEY
    yield "created", "Create", payloads.CreateResponsePayload(kind, "k-17"), "k-17"
    yield "activated", "Activate", payloads.ActivateResponsePayload(attributes.UniqueIdentifier("k-17")), "k-17"
    given = payloads.GetAttributesResponsePayload("k-17", key_attributes(True))
    yield "attributes", "GetAttributes", given, {"algorithm": 3, "length": 256, "usage": 12, "state": 2}
    does = [OPERATION.CREATE, OPERATION.ENCRYPT, OPERATION.DECRYPT]
    yield "operations", "Query", payloads.QueryResponsePayload(does, vendor_identification="PyKMIP"), [1, 31, 32]
    spoken = [[2, 0], [1, 4], [1, 0]]
    discovered = payloads.DiscoverVersionsResponsePayload([contents.ProtocolVersion(*one) for one in spoken])
    yield "versions", "DiscoverVersions", discovered, spoken
    sealed = payloads.EncryptResponsePayload("k-17", SEALED, auth_tag=TAG)
    yield "encrypted", "Encrypt", sealed, (bytes(12) + TAG + SEALED).hex()
    own = payloads.EncryptResponsePayload("k-17", SEALED, NONCE, TAG)
    yield "encrypted-its-nonce", "Encrypt", own, (NONCE + TAG + SEALED).hex()
    yield "encrypted-short-tag", "Encrypt", payloads.EncryptResponsePayload("k-17", SEALED, NONCE, TAG[:12]), None
    yield "decrypted", "Decrypt", payloads.DecryptResponsePayload("k-17", KEY), KEY.hex()
    yield "decrypted-short", "Decrypt", payloads.DecryptResponsePayload("k-17", KEY[:31]), None
    yield "key", "Get", payloads.GetResponsePayload(kind, "k-17", symmetric_key()), KEY.hex()
    yield "key-wrapped", "Get", payloads.GetResponsePayload(kind, "k-17", symmetric_key(wrapped=True)), None


def cases() -> Iterator[tuple[str, dict[str, Any]]]:
    for version in VERSIONS:
        number = ".".join(map(str, version))
        for operation, given, payload in requests(version):
            written_there = request(version, member(operation), payload)
            yield (
                f"request-{operation.lower()}-{number}",
                document(f"{operation} as a request", "request", version, operation, given, {"message": written_there}),
            )
        for shows, operation, payload, expected in responses(version):
            given = {"message": response(version, member(operation), payload)}
            yield (
                f"{shows}-{number}",
                document(shows.replace("-", ", "), "response", version, operation, given, {"read": expected}),
            )
        failed = {"status": enums.ResultStatus.OPERATION_FAILED, "reason": enums.ResultReason.ITEM_NOT_FOUND}
        given = {"message": response(version, OPERATION.GET, None, message="It is\nnot there.", **failed)}
        refused = {"refused": {"reason": 1, "words": "It isnot there."}}
        yield f"failed-{number}", document("failed", "response", version, "Get", given, refused)
        pending = {"message": response(version, OPERATION.GET, None, status=enums.ResultStatus.OPERATION_PENDING)}
        neither = {"malformed": True}
        yield f"pending-{number}", document("pending", "response", version, "Get", pending, neither)
        created = payloads.CreateResponsePayload(enums.ObjectType.SYMMETRIC_KEY, "k-17")
        another = {"message": response(version, OPERATION.CREATE, created)}
        yield (
            f"of-another-{number}",
            document("an answer to another request", "response", version, "Get", another, neither),
        )


def member(operation: str) -> enums.Operation:
    return next(one for one in OPERATION if one.name.replace("_", "").lower() == operation.lower())


def document(
    shows: str, operation: str, version: tuple[int, int], asked: str, given: dict[str, Any], expect: dict[str, Any]
) -> dict[str, Any]:
    given = {"version": list(version), "operation": asked, **given}
    return {
        "shows": f"KMIP {version[0]}.{version[1]}: {shows}",
        "operation": operation,
        "given": given,
        "expect": expect,
    }


if __name__ == "__main__":
    documents = dict(cases())
    if sys.argv[1:] == ["write"]:
        DIRECTORY.mkdir(exist_ok=True)
        for name, content in documents.items():
            (DIRECTORY / f"{name}.json").write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    else:
        json.dump(documents, sys.stdout)
