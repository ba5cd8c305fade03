"""Map CUDA devices to the CPU where torch takes them: factory functions, tensors, generators, checkpoints."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

from allranks.rehearse.accelerator import names
from allranks.rehearse.accelerator.state import STATE


class Devices:
    """The mapping of devices in one process. ``generator()`` returns the random generator of the current device."""

    def __init__(self, torch: Any, generator: Callable[[], Any]) -> None:
        self._torch, self._generator = torch, generator
        self._cpu = torch.device("cpu")

    def map_device(self, device: Any, name: str) -> Any:
        """Return the CPU for a CUDA device (also ``"cuda:1"`` and 1), and any other value as it is."""
        if isinstance(device, str):
            if not device.startswith("cuda"):
                return device
            device = self._torch.device(device)
        if isinstance(device, int) and not isinstance(device, bool):
            STATE.use(device, name)
            return self._cpu
        if isinstance(device, self._torch.device) and device.type == "cuda":
            STATE.use(device.index, name)
            return self._cpu
        return device

    def attach(self) -> None:
        """Replace the functions of the tables in ``names``."""
        torch = self._torch
        self._default_devices()  # first: it needs the functions that are replaced below
        for path in (*names.FACTORIES, *names.RANDOM_FACTORIES, *names.RANDOM_LIKE):
            owner = _owner(torch, path)
            name = path.rpartition(".")[2]
            if (original := getattr(owner, name, None)) is not None:
                make = self._factory(original, path)
                setattr(owner, name, make)
                torch.jit._builtins._register_builtin(make, f"aten::{name}")
        tensor = torch.Tensor
        for name in names.METHODS:
            setattr(tensor, name, self._method(getattr(tensor, name), name))
        tensor.cuda, tensor.cpu = self._cuda(), self._copied(tensor.cpu)
        tensor.pin_memory = lambda one, *_, **__: one
        tensor.record_stream = lambda *_: None
        tensor.type = self._type(tensor.type)
        for storage in (torch.UntypedStorage, torch.TypedStorage):
            storage.cuda = lambda one, *_, **__: one
            storage.pin_memory = lambda one, *_, **__: one
        torch._C._nn._parse_to = self._parse(torch._C._nn._parse_to)
        torch.Generator = self._generators(torch.Generator)
        torch.set_default_tensor_type = self._type_function(torch.set_default_tensor_type)
        torch.serialization.register_package(5, lambda _: None, self._restored)

    def _factory(self, original: Callable[..., Any], name: str) -> Callable[..., Any]:
        draws = name in names.RANDOM_FACTORIES

        @functools.wraps(original)
        def make(*args: Any, **options: Any) -> Any:
            device = options.get("device")
            if options.get("pin_memory"):
                STATE.note("pinned memory")
                options["pin_memory"] = False
            if device is None:
                if name == "as_tensor" and len(args) == 3:
                    args = (*args[:2], self.map_device(args[2], "torch.as_tensor(device)"))
                return original(*args, **options)
            mapped = self.map_device(device, f"torch.{name}(device)")
            if mapped is not device:
                options["device"] = mapped
                if draws and mapped is self._cpu and options.get("generator") is None:
                    options["generator"] = self._generator()
            return original(*args, **options)

        return make

    def _method(self, original: Callable[..., Any], name: str) -> Callable[..., Any]:
        takes_device_first = name == "to"
        label = f"Tensor.{name}"

        @functools.wraps(original)
        def call(tensor: Any, *args: Any, **options: Any) -> Any:
            if takes_device_first and args:
                first = self.map_device(args[0], label)
                if first is not args[0]:
                    return original(tensor, first, *args[1:], **options)
            elif (device := options.get("device")) is not None:
                options["device"] = self.map_device(device, label)
                if options["device"] is not device:
                    return original(tensor, *args, **options)
            result = original(tensor, *args, **options)
            if result is tensor and takes_device_first and STATE.is_used and self._is_to_cpu(args, options):
                return tensor.clone()
            return result

        return call

    def _is_to_cpu(self, args: tuple[Any, ...], options: dict[str, Any]) -> bool:
        device = args[0] if args else options.get("device")
        return isinstance(device, str | self._torch.device) and str(device).startswith("cpu")

    def _cuda(self) -> Callable[..., Any]:
        def cuda(tensor: Any, device: Any = None, *_: Any, **options: Any) -> Any:
            """Return the tensor, which is on the CPU and stays there."""
            options.pop("non_blocking", None)
            self.map_device("cuda" if device is None else device, "Tensor.cuda")
            return tensor.to(**options) if options else tensor

        return cuda

    def _copied(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def cpu(tensor: Any, *args: Any, **options: Any) -> Any:
            """Return a copy, as from a GPU: the program may keep it while the tensor changes."""
            result = original(tensor, *args, **options)
            return tensor.clone() if result is tensor and STATE.is_used else result

        return cpu

    def _type(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def type_(tensor: Any, dtype: Any = None, *args: Any, **options: Any) -> Any:
            return original(tensor, self._cpu_type(dtype), *args, **options)

        return type_

    def _type_function(self, original: Callable[..., Any]) -> Callable[..., Any]:
        return functools.wraps(original)(lambda kind: original(self._cpu_type(kind)))

    def _cpu_type(self, kind: Any) -> Any:
        if isinstance(kind, str) and kind.startswith("torch.cuda."):
            STATE.use(None, "torch.cuda.*Tensor")
            return kind.replace("torch.cuda.", "torch.")
        return kind

    def _parse(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function that reads the arguments of ``Module.to``: without a GPU torch refuses a number."""

        def parse(*args: Any, **options: Any) -> Any:
            if args and isinstance(args[0], int):
                args = (self._torch.device("cuda", args[0]), *args[1:])
            if isinstance(number := options.get("device"), int):
                options["device"] = self._torch.device("cuda", number)
            return original(*args, **options)

        return parse

    def _generators(self, original: Any) -> Any:
        devices = self

        class Meta(type):
            def __instancecheck__(cls, one: Any) -> bool:
                return isinstance(one, original)

            def __subclasscheck__(cls, one: Any) -> bool:
                return issubclass(one, original)

        class Generator(metaclass=Meta):
            def __new__(cls, device: Any = "cpu") -> Any:
                return original(devices.map_device(device, "torch.Generator(device)"))

        return Generator

    def _default_devices(self) -> None:
        """Let ``torch.set_default_device("cuda")`` and ``with torch.device("cuda")`` make tensors on the CPU."""
        module = importlib.import_module("torch.utils._device")
        makers, context = module._device_constructors(), module.DeviceContext
        original = context.__torch_function__
        draw = {getattr(self._torch, name) for name in names.RANDOM_FACTORIES}

        def torch_function(one: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if one.device.type != "cuda":
                return original(one, func, types, args, kwargs)
            options = dict(kwargs or {})
            if func in makers and options.get("device") is None:
                options["device"] = self.map_device(one.device, "torch.set_default_device")
                if func in draw and options.get("generator") is None:
                    options["generator"] = self._generator()
            return func(*args, **options)

        context.__torch_function__ = torch_function

    def _restored(self, storage: Any, location: str) -> Any:
        """Return a storage of a checkpoint whose location is a CUDA device; None for any other location."""
        if not location.startswith("cuda"):
            return None
        self.map_device(location, "torch.load")
        return storage


def _owner(torch: Any, path: str) -> Any:
    return functools.reduce(getattr, path.split(".")[:-1], torch)
