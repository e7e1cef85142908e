"""Give hatchling the package's page; its links lead to `Repository` of [project.urls], once there is one."""

import sys
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

sys.path.insert(0, str(Path(__file__).parent / "tools"))
from package_page import package_page


class PackagePage(MetadataHookInterface):
    """Set the long description."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Make it from README.md."""
        readme = Path(self.root, "README.md").read_text(encoding="utf-8")
        page = package_page(readme, metadata.get("urls", {}).get("Repository"))
        metadata["readme"] = {"content-type": "text/markdown", "text": page}
