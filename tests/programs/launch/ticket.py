"""A token of GSS-API for a service, with channel bindings or without, in base 64.

ticket.py SERVICE@HOST [BINDINGS]
"""

import base64
import ctypes
import sys
from ctypes import POINTER, byref, c_char_p, c_size_t, c_uint32, c_void_p


class Bytes(ctypes.Structure):
    """gss_buffer_desc"""

    _fields_ = (("length", c_size_t), ("value", c_char_p))

    @classmethod
    def of(cls, value: bytes) -> "Bytes":
        """Bytes of ours."""
        return cls(len(value), value)


class Oid(ctypes.Structure):
    """gss_OID_desc"""

    _fields_ = (("length", c_uint32), ("elements", c_char_p))


class Bindings(ctypes.Structure):
    """gss_channel_bindings_struct"""

    _fields_ = (
        ("initiator_type", c_uint32),
        ("initiator", Bytes),
        ("acceptor_type", c_uint32),
        ("acceptor", Bytes),
        ("application", Bytes),
    )


gss = ctypes.CDLL("libgssapi_krb5.so.2")
minor, name, context = c_uint32(), c_void_p(), c_void_p()
host_based = bytes.fromhex("2a864886f71201020104")
kerberos = bytes.fromhex("2a864886f712010202")
service = Bytes.of(sys.argv[1].encode())
kind, mechanism = Oid(len(host_based), host_based), Oid(len(kerberos), kerberos)
assert gss.gss_import_name(byref(minor), byref(service), byref(kind), byref(name)) == 0
bindings = None
if len(sys.argv) > 2:
    bindings = byref(Bindings(0, Bytes(), 0, Bytes(), Bytes.of(sys.argv[2].encode())))


class Made(ctypes.Structure):
    """gss_buffer_desc that the library fills"""

    _fields_ = (("length", c_size_t), ("value", POINTER(ctypes.c_char)))


token, mutual = Made(), 2
major = gss.gss_init_sec_context(
    byref(minor),
    None,
    byref(context),
    name,
    byref(mechanism),
    mutual,
    0,
    bindings,
    None,
    None,
    byref(token),
    None,
    None,
)
assert major in (0, 1), (major, minor.value)
print(base64.b64encode(token.value[: token.length]).decode())
