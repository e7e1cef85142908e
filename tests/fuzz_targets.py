"""Everything that takes input from outside, by name."""

import fuzz_bulk
import fuzz_cli
import fuzz_models
import fuzz_readers
import fuzz_server
import fuzz_settings
from fuzzing import Target

TARGETS: dict[str, Target] = {
    name: target
    for module in (fuzz_readers, fuzz_bulk, fuzz_settings, fuzz_models, fuzz_server, fuzz_cli)
    for name, target in module.TARGETS.items()
}
