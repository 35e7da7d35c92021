# ruff: noqa: E501 - a sample is a line
"""Pages in the shapes of each generation of dcgm-exporter, with invented names and values."""

UUID = "GPU-00000000-1111-2222-3333-444444444444"
OTHER = "GPU-00000000-1111-2222-3333-555555555555"

FIRST = f"""\
# HELP dcgm_gpu_temp GPU temperature (in C).
# TYPE dcgm_gpu_temp gauge
dcgm_gpu_temp{{gpu="0",uuid="{UUID}",container_name="train",pod_name="job-a",pod_namespace="lab"}} 41
dcgm_power_usage{{gpu="0",uuid="{UUID}",container_name="train",pod_name="job-a",pod_namespace="lab"}} 212.5
"""
"""1.x: lower case, no host, no model, Kubernetes labels of their own names."""

CAPITAL = f"""\
# HELP DCGM_FI_DEV_GPU_TEMP GPU temperature (in C).
# TYPE DCGM_FI_DEV_GPU_TEMP gauge
DCGM_FI_DEV_GPU_TEMP{{gpu="0",UUID="{UUID}",device="nvidia0",modelName="NVIDIA H200",Hostname="node-7",DCGM_FI_DRIVER_VERSION="570.1",container="train",namespace="lab",pod="job-a"}} 41
# HELP DCGM_FI_DEV_POWER_USAGE Power draw (in W).
# TYPE DCGM_FI_DEV_POWER_USAGE gauge
DCGM_FI_DEV_POWER_USAGE{{gpu="0",UUID="{UUID}",device="nvidia0",modelName="NVIDIA H200",Hostname="node-7",DCGM_FI_DRIVER_VERSION="570.1",container="train",namespace="lab",pod="job-a"}} 212.500000
"""
"""2.x to 4.x: `Hostname`."""

SMALL = CAPITAL.replace("Hostname", "hostname").replace(
    'device="nvidia0"', 'pci_bus_id="00000000:1B:00.0",device="nvidia0"'
)
"""Since May 2026: `hostname`; since June 2024: `pci_bus_id`."""

RENAMED = SMALL.replace("DEV_GPU_TEMP", "DEV_GPU_TEMP_CELSIUS").replace(
    "DEV_POWER_USAGE", "DEV_BOARD_POWER_WATTS"
)

LINKS = f"""\
DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL{{gpu="0",gpu_uuid="{UUID}",device="nvidia0",model_name="NVIDIA H200",hostname="node-7",nvlink="3"}} 17
"""

SLICES = "".join(
    f'DCGM_FI_PROF_GR_ENGINE_ACTIVE{{gpu="0",UUID="{UUID}",device="nvidia0",'
    f'modelName="NVIDIA H200",GPU_I_PROFILE="1g.18gb",GPU_I_ID="{slice_id}",'
    f'hostname="node-7"}} 0.{slice_id}50000\n'
    for slice_id in (7, 9)
)

SHARED = "".join(
    f'{metric}{{gpu="0",UUID="{UUID}",device="nvidia0",hostname="node-7",'
    f'pod="job-{pod}",namespace="lab",container="c",vgpu="{pod}",hpc_job="4711"}} {value}\n'
    for metric, value in (("DCGM_FI_DEV_GPU_UTIL", 90), ("DCGM_FI_DEV_FB_USED", 1000))
    for pod in (0, 1)
)
"""Time slicing: a copy of each sample for each pod."""

FEDERATED = (
    f'DCGM_FI_DEV_GPU_TEMP{{gpu="0",UUID="{UUID}",device="nvidia0",Hostname="node-7",'
    'exported_pod="job-a",exported_namespace="lab",exported_container="train",'
    'pod="dcgm-exporter-x1",namespace="monitoring",container="exporter",'
    'instance="10.0.0.7:9400",job="gpu"} 41 1900000000123\n'
)
"""As Prometheus hands it on: its target's labels, and the time of its scrape."""

EXPORTERS_OWN = "# TYPE go_goroutines gauge\ngo_goroutines 12\nprocess_open_fds 7\n"
