"""Denoise a folder of pictures, and hear of each. Usage: folder.py INPUT OUTPUT"""

import sys
from pathlib import Path

from nelu_cli import Job, Options, Settings, denoise_files


def main(source: Path, target: Path) -> int:
    jobs = [Job(path, target / path.name) for path in sorted(source.glob("*.png"))]
    settings = Settings(Options(strength=0.9), skip_existing=True)
    failed = 0
    for record in denoise_files(jobs, settings):
        if record.status == "failed":
            failed += 1
            print(f"failed: {record.error}")
        else:
            print(f"{record.status}: {record.output} (noise {record.noise}, {record.model})")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
