"""nvidia-smi -q dumps of older and newer drivers than the real captures', text and XML, whole, partial and damaged."""

import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuwatch.collect.nvml.events import DriverEventReader
from gpuwatch.collect.nvml.gpu import GpuReader, register
from gpuwatch.collect.nvml.library import Failure, NvmlFailure, ask
from gpuwatch.model.errors import UsageError
from gpuwatch.model.snapshot import Gpu, License
from gpuwatch.sim.capture import missing, open_capture
from gpuwatch.sim.capture.nvidia_smi.parse import parse_xml
from gpuwatch.sim.capture.nvidia_smi.values import refuse_words
from tests.cli.commands import run
from tests.seeds import examples

CAPTURES = Path(__file__).parents[3] / "captures"
MIB = 1 << 20

V100_390 = """
==============NVSMI LOG==============

Timestamp                           : Thu Jan 18 10:11:12 2018
Driver Version                      : 390.25

Attached GPUs                       : 1
GPU 00000000:15:00.0
    Product Name                    : Tesla V100-SXM2-16GB
    Product Brand                   : Tesla
    Display Mode                    : Enabled
    Display Active                  : Disabled
    Persistence Mode                : Enabled
    Serial Number                   : 0320000000001
    GPU UUID                        : GPU-0a0b0c0d-0000-1111-2222-333344445555
    Minor Number                    : 3
    VBIOS Version                   : 88.00.18.00.01
    Inforom Version
        Image Version               : G503.0201.00.03
        ECC Object                  : 5.0
    GPU Virtualization Mode
        Virtualization mode         : None
    PCI
        Bus                         : 0x15
        Device                      : 0x00
        Domain                      : 0x0000
        Device Id                   : 0x1DB110DE
        Bus Id                      : 00000000:15:00.0
        Sub System Id               : 0x121210DE
        GPU Link Info
            PCIe Generation
                Max                 : 3
                Current             : 3
            Link Width
                Max                 : 16x
                Current             : 8x
        Replays since reset         : 7
        Tx Throughput               : 1000 KB/s
        Rx Throughput               : 2000 KB/s
    Fan Speed                       : N/A
    Performance State               : P0
    Clocks Throttle Reasons
        Idle                        : Not Active
        Applications Clocks Setting : Not Active
        SW Power Cap                : Active
        HW Slowdown                 : Active
            HW Thermal Slowdown     : Active
            HW Power Brake Slowdown : Not Active
        Sync Boost                  : Not Active
        SW Thermal Slowdown         : Not Active
    FB Memory Usage
        Total                       : 16160 MiB
        Used                        : 418 MiB
        Free                        : 15742 MiB
    BAR1 Memory Usage
        Total                       : 16384 MiB
        Used                        : 2 MiB
        Free                        : 16382 MiB
    Compute Mode                    : Exclusive_Process
    Utilization
        Gpu                         : 37 %
        Memory                      : 12 %
        Encoder                     : 0 %
        Decoder                     : 0 %
    Ecc Mode
        Current                     : Enabled
        Pending                     : Disabled
    ECC Errors
        Volatile
            Single Bit
                Device Memory       : 1
                Register File       : 2
                L1 Cache            : 3
                L2 Cache            : 4
                Texture Memory      : N/A
                Texture Shared      : N/A
                CBU                 : N/A
                Total               : 10
            Double Bit
                Device Memory       : 0
                Register File       : 0
                L1 Cache            : 0
                L2 Cache            : 0
                Texture Memory      : N/A
                Texture Shared      : N/A
                CBU                 : 5
                Total               : 5
        Aggregate
            Single Bit
                Device Memory       : 11
                Total               : 11
            Double Bit
                Device Memory       : 0
                Total               : 0
    Retired Pages
        Single Bit ECC              : 2
        Double Bit ECC              : 1
        Pending                     : Yes
    Temperature
        GPU Current Temp            : 64 C
        GPU Shutdown Temp           : 90 C
        GPU Slowdown Temp           : 87 C
        GPU Max Operating Temp      : 83 C
        Memory Current Temp         : 60 C
        Memory Max Operating Temp   : 85 C
    Power Readings
        Power Management            : Supported
        Power Draw                  : 151.26 W
        Power Limit                 : 250.00 W
        Default Power Limit         : 300.00 W
        Enforced Power Limit        : 240.00 W
        Min Power Limit             : 150.00 W
        Max Power Limit             : 300.00 W
    Clocks
        Graphics                    : 1312 MHz
        SM                          : 1312 MHz
        Memory                      : 877 MHz
        Video                       : 1177 MHz
    Max Clocks
        Graphics                    : 1530 MHz
        SM                          : 1530 MHz
        Memory                      : 877 MHz
        Video                       : 1372 MHz
    Processes
        Process ID                  : 4711
            Type                    : C
            Name                    : python : train
            Used GPU Memory         : 408 MiB
        Process ID                  : 4712
            Type                    : M+C
            Name                    : [Insufficient Permissions]
            Used GPU Memory         : Not available in WDDM driver model

"""

T4_XML_470 = """<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v11.dtd">
<nvidia_smi_log>
	<timestamp>Wed Sep 15 21:42:05 2021</timestamp>
	<driver_version>470.57.02</driver_version>
	<cuda_version>11.4</cuda_version>
	<attached_gpus>1</attached_gpus>
	<gpu id="00000000:00:1E.0">
		<product_name>Tesla T4</product_name>
		<product_brand>NVIDIA</product_brand>
		<product_architecture>Turing</product_architecture>
		<display_active>Disabled</display_active>
		<persistence_mode>Disabled</persistence_mode>
		<mig_mode>
			<current_mig>N/A</current_mig>
			<pending_mig>N/A</pending_mig>
		</mig_mode>
		<mig_devices>
			None
		</mig_devices>
		<serial>1320000000001</serial>
		<uuid>GPU-84b0bf9a-0000-0000-0000-000000000001</uuid>
		<minor_number>0</minor_number>
		<vbios_version>90.04.84.00.06</vbios_version>
		<inforom_version><img_version>G183.0200.00.02</img_version></inforom_version>
		<gpu_virtualization_mode><virtualization_mode>Pass-Through</virtualization_mode></gpu_virtualization_mode>
		<pci>
			<pci_bus>00</pci_bus>
			<pci_device>1E</pci_device>
			<pci_domain>0000</pci_domain>
			<pci_device_id>1EB810DE</pci_device_id>
			<pci_bus_id>00000000:00:1E.0</pci_bus_id>
			<pci_gpu_link_info>
				<pcie_gen><max_link_gen>3</max_link_gen><current_link_gen>1</current_link_gen></pcie_gen>
				<link_widths><max_link_width>16x</max_link_width><current_link_width>8x</current_link_width></link_widths>
			</pci_gpu_link_info>
			<replay_counter>4</replay_counter>
		</pci>
		<fan_speed>N/A</fan_speed>
		<performance_state>P8</performance_state>
		<clocks_throttle_reasons>
			<clocks_throttle_reason_gpu_idle>Active</clocks_throttle_reason_gpu_idle>
			<clocks_throttle_reason_hw_slowdown>Not Active</clocks_throttle_reason_hw_slowdown>
			<clocks_throttle_reason_hw_thermal_slowdown>Active</clocks_throttle_reason_hw_thermal_slowdown>
			<clocks_throttle_reason_display_clocks_setting>Not Active</clocks_throttle_reason_display_clocks_setting>
		</clocks_throttle_reasons>
		<fb_memory_usage><total>15109 MiB</total><used>3 MiB</used><free>15106 MiB</free></fb_memory_usage>
		<bar1_memory_usage><total>256 MiB</total><used>2 MiB</used><free>254 MiB</free></bar1_memory_usage>
		<compute_mode>Default</compute_mode>
		<utilization>
			<gpu_util>5 %</gpu_util><memory_util>1 %</memory_util>
			<encoder_util>2 %</encoder_util><decoder_util>3 %</decoder_util>
		</utilization>
		<ecc_mode><current_ecc>Enabled</current_ecc><pending_ecc>Enabled</pending_ecc></ecc_mode>
		<ecc_errors>
			<volatile>
				<sram_correctable>N/A</sram_correctable><sram_uncorrectable>N/A</sram_uncorrectable>
				<dram_correctable>6</dram_correctable><dram_uncorrectable>1</dram_uncorrectable>
			</volatile>
		</ecc_errors>
		<retired_pages>
			<multiple_single_bit_retirement>
				<retired_count>2</retired_count>
				<retired_pagelist><retired_page_address>0x1</retired_page_address></retired_pagelist>
			</multiple_single_bit_retirement>
			<double_bit_retirement><retired_count>0</retired_count><retired_pagelist></retired_pagelist></double_bit_retirement>
			<pending_blacklist>No</pending_blacklist>
			<pending_retirement>No</pending_retirement>
		</retired_pages>
		<remapped_rows>N/A</remapped_rows>
		<temperature>
			<gpu_temp>45 C</gpu_temp>
			<gpu_temp_max_threshold>96 C</gpu_temp_max_threshold>
			<gpu_temp_slow_threshold>93 C</gpu_temp_slow_threshold>
			<gpu_temp_max_gpu_threshold>85 C</gpu_temp_max_gpu_threshold>
			<memory_temp>N/A</memory_temp>
			<gpu_temp_max_mem_threshold>N/A</gpu_temp_max_mem_threshold>
		</temperature>
		<power_readings>
			<power_state>P8</power_state>
			<power_management>Supported</power_management>
			<power_draw>15.52 W</power_draw>
			<power_limit>70.00 W</power_limit>
			<default_power_limit>70.00 W</default_power_limit>
			<enforced_power_limit>68.00 W</enforced_power_limit>
			<min_power_limit>60.00 W</min_power_limit>
			<max_power_limit>70.00 W</max_power_limit>
		</power_readings>
		<clocks>
			<graphics_clock>300 MHz</graphics_clock><sm_clock>300 MHz</sm_clock>
			<mem_clock>405 MHz</mem_clock><video_clock>540 MHz</video_clock>
		</clocks>
		<max_clocks>
			<graphics_clock>1590 MHz</graphics_clock><sm_clock>1590 MHz</sm_clock>
			<mem_clock>5001 MHz</mem_clock><video_clock>1470 MHz</video_clock>
		</max_clocks>
		<processes>
			<process_info>
				<gpu_instance_id>N/A</gpu_instance_id>
				<compute_instance_id>N/A</compute_instance_id>
				<pid>1802</pid>
				<type>G</type>
				<process_name>/usr/lib/Xorg &lt;x&gt;</process_name>
				<used_memory>3 MiB</used_memory>
			</process_info>
		</processes>
	</gpu>
</nvidia_smi_log>
"""

A100_XML_550 = """<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
	<driver_version>550.127.05</driver_version>
	<cuda_version>12.4</cuda_version>
	<attached_gpus>1</attached_gpus>
	<gpu id="00000000:68:00.0">
		<product_name>NVIDIA A100-SXM4-80GB</product_name>
		<product_architecture>Ampere</product_architecture>
		<mig_mode><current_mig>Enabled</current_mig><pending_mig>Disabled</pending_mig></mig_mode>
		<mig_devices>
			<mig_device>
				<index>0</index>
				<gpu_instance_id>1</gpu_instance_id>
				<compute_instance_id>0</compute_instance_id>
				<device_attributes><shared>
					<multiprocessor_count>42</multiprocessor_count><copy_engine_count>3</copy_engine_count>
				</shared></device_attributes>
				<ecc_error_count><volatile_count><sram_uncorrectable>2</sram_uncorrectable></volatile_count></ecc_error_count>
				<fb_memory_usage>
					<total>40192 MiB</total><reserved>0 MiB</reserved><used>25 MiB</used><free>40166 MiB</free>
				</fb_memory_usage>
				<bar1_memory_usage><total>65535 MiB</total><used>0 MiB</used><free>65535 MiB</free></bar1_memory_usage>
			</mig_device>
		</mig_devices>
		<uuid>GPU-c0ffee00-0000-0000-0000-000000000001</uuid>
		<gpu_reset_status>
			<reset_required>No</reset_required>
			<drain_and_reset_recommended>Yes</drain_and_reset_recommended>
		</gpu_reset_status>
		<gsp_firmware_version>550.127.05</gsp_firmware_version>
		<clocks_event_reasons>
			<clocks_event_reason_gpu_idle>Not Active</clocks_event_reason_gpu_idle>
			<clocks_event_reason_sw_power_cap>Active</clocks_event_reason_sw_power_cap>
		</clocks_event_reasons>
		<fb_memory_usage>
			<total>81920 MiB</total><reserved>633 MiB</reserved><used>25 MiB</used><free>81261 MiB</free>
		</fb_memory_usage>
		<utilization><gpu_util>N/A</gpu_util><memory_util>N/A</memory_util></utilization>
		<ecc_errors>
			<volatile>
				<sram_correctable>1</sram_correctable>
				<sram_uncorrectable_parity>2</sram_uncorrectable_parity>
				<sram_uncorrectable_secded>3</sram_uncorrectable_secded>
				<dram_correctable>4</dram_correctable>
				<dram_uncorrectable>5</dram_uncorrectable>
			</volatile>
			<aggregate>
				<sram_correctable>0</sram_correctable>
				<sram_uncorrectable_parity>20</sram_uncorrectable_parity>
				<sram_uncorrectable_secded>30</sram_uncorrectable_secded>
				<dram_correctable>0</dram_correctable>
				<dram_uncorrectable>0</dram_uncorrectable>
				<sram_threshold_exceeded>Yes</sram_threshold_exceeded>
			</aggregate>
			<aggregate_uncorrectable_sram_sources>
				<sram_l2>6</sram_l2><sram_sm>7</sram_sm><sram_microcontroller>8</sram_microcontroller>
				<sram_pcie>9</sram_pcie><sram_other>10</sram_other>
			</aggregate_uncorrectable_sram_sources>
		</ecc_errors>
		<remapped_rows>
			<remapped_row_corr>1</remapped_row_corr>
			<remapped_row_unc>2</remapped_row_unc>
			<remapped_row_pending>Yes</remapped_row_pending>
			<remapped_row_failure>No</remapped_row_failure>
			<row_remapper_histogram>
				<row_remapper_histogram_max>637 bank(s)</row_remapper_histogram_max>
				<row_remapper_histogram_high>2 bank(s)</row_remapper_histogram_high>
				<row_remapper_histogram_partial>1 bank(s)</row_remapper_histogram_partial>
				<row_remapper_histogram_low>0 bank(s)</row_remapper_histogram_low>
				<row_remapper_histogram_none>0 bank(s)</row_remapper_histogram_none>
			</row_remapper_histogram>
		</remapped_rows>
		<gpu_power_readings>
			<power_state>P0</power_state>
			<power_draw>61.40 W</power_draw>
			<current_power_limit>400.00 W</current_power_limit>
			<requested_power_limit>N/A</requested_power_limit>
		</gpu_power_readings>
		<processes></processes>
	</gpu>
</nvidia_smi_log>
"""

GB200_570 = """
==============NVSMI LOG==============
Timestamp                                 : Mon May  5 12:00:00 2025
Driver Version                            : 570.124.06
CUDA Version                              : 12.8

Attached GPUs                             : 2
GPU 00000008:01:00.0
    Product Name                          : NVIDIA GB200
    Product Brand                         : NVIDIA
    Product Architecture                  : Blackwell
    GPU UUID                              : GPU-00000000-0000-0000-0000-000000000000
    GPU Reset Status
        Reset Required                    : Requested functionality has been deprecated
        Drain and Reset Recommended       : Requested functionality has been deprecated
    GPU Recovery Action                   : Drain and Reset
    Clocks Event Reasons                  : N/A
    FB Memory Usage
        Total                             : 189471 MiB
        Reserved                          : 1122 MiB
        Used                              : 0 MiB
        Free                              : 188349 MiB
    Temperature
        GPU Current Temp                  : 35 C
        GPU T.Limit Temp                  : 50 C
        Memory Current Temp               : 36 C
    GPU Power Readings
        Average Power Draw                : N/A
        Instantaneous Power Draw          : 170.55 W
    Fabric
        State                             : Completed
        Status                            : Success
        CliqueId                          : 32766
        ClusterUUID                       : 0a0b0c0d-0e0f-1011-1213-141516171819
        Health
            Bandwidth                     : Full
            Route Recovery in progress    : False
            Route Unhealthy               : True
            Access Timeout Recovery       : N/A
            Incorrect Configuration       : None
    Processes                             : None
GPU 00000018:01:00.0
    Product Name                          : NVIDIA GB200
    GPU UUID                              : GPU-00000000-0000-0000-0000-000000000000
    FB Memory Usage
        Total                             : Not Supported
        Used                              : [N/A]
        Free                              : [Unknown Error]
    Fabric
        State                             : In Progress
        Status                            : N/A
        CliqueId                          : N/A
        ClusterUUID                       : N/A
    Processes                             : N/A
"""

DUMPS = (V100_390, T4_XML_470, A100_XML_550, GB200_570)


def gpus(content: str | bytes, tmp_path: Path, part: str = "") -> list[Gpu]:
    path = tmp_path / "dump"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    nvml = open_capture(f"{path}#{part}" if part else str(path))
    ask(nvml, "nvmlInit")
    return [GpuReader(nvml, *register(nvml, i)).read(0.0, 0.0) for i in range(ask(nvml, "nvmlDeviceGetCount"))]


def test_volta_of_driver_390(tmp_path: Path) -> None:
    (gpu,) = gpus(V100_390, tmp_path)

    assert (gpu.identity.uuid, gpu.identity.pci_bus_id) == (
        "GPU-0a0b0c0d-0000-1111-2222-333344445555",
        "00000000:15:00.0",
    )
    assert (gpu.identity.name, gpu.identity.brand, gpu.identity.minor) == ("Tesla V100-SXM2-16GB", "Tesla", 3)
    assert (gpu.memory.total, gpu.memory.used, gpu.memory.reserved) == (16160 * MIB, 418 * MIB, None)
    assert (gpu.power.average, gpu.power.instant) == (151.26, None)
    assert (gpu.power.limit_enforced, gpu.power.limit_configured, gpu.power.limit_min) == (240.0, 250.0, 150.0)
    assert (gpu.temperature.threshold_shutdown, gpu.temperature.threshold_memory_max) == (90.0, 85.0)
    assert (gpu.temperature.margin, gpu.temperature.margin_slowdown) == (None, None)
    assert (gpu.pcie.width, gpu.pcie.width_max, gpu.pcie.replays) == (8, 16, 7)
    assert (gpu.ecc.enabled, gpu.ecc.pending) == (True, False)
    assert (gpu.compute_mode, gpu.virtualization_mode) == ("exclusive_process", "none")
    assert (gpu.utilization.gpu, gpu.utilization.jpeg) == (0.37, None)
    assert (gpu.mig_enabled, gpu.fans, gpu.recovery_action) == (None, (), None)


def test_ecc_and_retired_pages_of_volta(tmp_path: Path) -> None:
    (gpu,) = gpus(V100_390, tmp_path)

    assert {name: count for name, count in gpu.ecc.counts.items() if "volatile" in name} == {
        "corrected/volatile/dram": 1,
        "corrected/volatile/register_file": 2,
        "corrected/volatile/l1_cache": 3,
        "corrected/volatile/l2_cache": 4,
        "corrected/volatile/total": 10,
        "uncorrected/volatile/dram": 0,
        "uncorrected/volatile/register_file": 0,
        "uncorrected/volatile/l1_cache": 0,
        "uncorrected/volatile/l2_cache": 0,
        "uncorrected/volatile/cbu": 5,
        "uncorrected/volatile/total": 5,
    }
    assert (gpu.retired_pages.single_bit, gpu.retired_pages.double_bit, gpu.retired_pages.pending) == (2, 1, True)
    assert gpu.row_remap.pending is None


def test_throttle_reasons_are_clock_events_and_nested_ones_count(tmp_path: Path) -> None:
    (gpu,) = gpus(V100_390, tmp_path)

    active = {reason for reason, on in gpu.clock_events.active.items() if on}
    assert active == {"sw_power_cap", "hw_slowdown", "hw_thermal_slowdown"}


def test_processes_of_old_text_have_no_instance_ids(tmp_path: Path) -> None:
    (gpu,) = gpus(V100_390, tmp_path)

    assert [(p.pid, p.type, p.used_memory, p.gi) for p in gpu.processes] == [
        (4711, "compute", 408 * MIB, None),
        (4712, "mps", None, None),
    ]


def test_turing_xml_of_driver_470(tmp_path: Path) -> None:
    (gpu,) = gpus(T4_XML_470, tmp_path)

    assert (gpu.identity.name, gpu.identity.architecture, gpu.identity.brand) == ("Tesla T4", "Turing", "NVIDIA")
    assert (gpu.identity.pci_bus_id, gpu.identity.serial) == ("00000000:00:1E.0", "1320000000001")
    assert (gpu.pcie.generation, gpu.pcie.generation_max, gpu.pcie.width, gpu.pcie.replays) == (1, 3, 8, 4)
    assert (gpu.utilization.gpu, gpu.utilization.encoder, gpu.utilization.decoder) == (0.05, 0.02, 0.03)
    assert (gpu.power.average, gpu.power.limit_enforced, gpu.power.limit_configured) == (15.52, 68.0, 70.0)
    assert (gpu.clocks.memory, gpu.clocks.memory_max, gpu.clocks.sm) == (405e6, 5001e6, 300e6)
    assert (gpu.temperature.threshold_slowdown, gpu.temperature.memory) == (93.0, None)
    assert (gpu.retired_pages.single_bit, gpu.retired_pages.pending) == (2, False)
    assert (gpu.performance_state, gpu.virtualization_mode) == (8, "passthrough")
    assert {reason for reason, on in gpu.clock_events.active.items() if on} == {"gpu_idle", "hw_thermal_slowdown"}
    assert [(p.pid, p.type, p.used_memory) for p in gpu.processes] == [(1802, "graphics", 3 * MIB)]


def test_ecc_total_is_of_the_parts_a_model_counts(tmp_path: Path) -> None:
    (gpu,) = gpus(T4_XML_470, tmp_path)

    assert gpu.ecc.counts == {
        "corrected/volatile/dram": 6,
        "corrected/volatile/total": 6,
        "uncorrected/volatile/dram": 1,
        "uncorrected/volatile/total": 1,
    }


def test_ampere_xml_of_driver_550_in_mig_mode(tmp_path: Path) -> None:
    (gpu,) = gpus(A100_XML_550, tmp_path)
    (mig,) = gpu.mig

    assert (gpu.mig_enabled, gpu.mig_pending, gpu.utilization.gpu) == (True, False, None)
    assert (mig.gi, mig.ci, mig.multiprocessors, mig.ecc_sram_uncorrected) == (1, 0, 42, 2)
    assert (mig.memory.total, mig.bar1.total) == (40192 * MIB, 65535 * MIB)
    assert mig.uuid == "MIG-GPU-c0ffee00-0000-0000-0000-000000000001/1/0"
    assert mig.profile == "3g.40gb"
    assert (gpu.power.average, gpu.power.limit_enforced, gpu.power.limit_configured) == (61.4, 400.0, None)
    assert (gpu.row_remap.corrected, gpu.row_remap.uncorrected, gpu.row_remap.pending) == (1, 2, True)
    assert gpu.row_remap.banks == {"max": 637, "high": 2, "partial": 1, "low": 0, "none": 0}
    assert gpu.ecc.counts["uncorrected/volatile/sram"] == 5
    assert gpu.ecc.counts["uncorrected/volatile/total"] == 10
    assert gpu.ecc.counts["uncorrected/aggregate/sram_mcu"] == 8
    assert gpu.ecc.sram_threshold_exceeded is True
    assert gpu.processes == ()


def test_without_a_list_a_mig_device_has_the_profile_of_its_memory_and_engines(tmp_path: Path) -> None:
    """The list of the capture says the same five."""
    unlisted = re.sub(r"^  MIG .*\n", "", (CAPTURES / "h200-mig__590.48.01.txt").read_text(), flags=re.MULTILINE)
    (gpu,) = gpus(unlisted, tmp_path)

    assert [mig.profile for mig in gpu.mig] == ["1c.3g.71gb", "2c.3g.71gb", "2g.35gb", "1g.18gb", "1g.18gb"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("40192 MiB</total><reserved>", "N/A</total><reserved>"),
        ("40192 MiB</total><reserved>", "30192 MiB</total><reserved>"),
        (">NVIDIA A100-SXM4-80GB<", ">NVIDIA A100-DRIVE<"),
        ("<copy_engine_count>3</copy_engine_count>", ""),
    ],
)
def test_a_mig_device_that_may_be_several_has_no_profile(before: str, after: str, tmp_path: Path) -> None:
    assert before in A100_XML_550

    (gpu,) = gpus(A100_XML_550.replace(before, after), tmp_path)

    assert [mig.profile for mig in gpu.mig] == [None]


def test_two_blackwells_of_driver_570(tmp_path: Path) -> None:
    first, second = gpus(GB200_570, tmp_path)

    assert (first.identity.architecture, first.recovery_action) == ("Blackwell", 4)
    assert (first.power.average, first.power.instant) == (None, 170.55)
    assert first.clock_events.active == {}
    assert (first.fabric.state, first.fabric.status, first.fabric.clique_id) == (3, 0, 32766)
    assert first.fabric.cluster_uuid == "0a0b0c0d-0e0f-1011-1213-141516171819"
    assert first.fabric.health_mask == 2 | 2 << 2 | 1 << 4 | 1 << 8
    assert first.processes == ()
    assert (second.memory.total, second.fabric.state, second.fabric.clique_id) == (None, 2, None)
    assert second.processes is None


def test_gpus_that_masking_made_the_same_stay_two(tmp_path: Path) -> None:
    first, second = gpus(GB200_570, tmp_path)

    assert first.identity.uuid == "GPU-00000000-0000-0000-0000-000000000000"
    assert re.fullmatch(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", second.identity.uuid)
    assert second.identity.uuid != first.identity.uuid
    assert second.identity.pci_bus_id == "00000018:01:00.0"


@pytest.mark.parametrize(
    ("word", "kind"),
    [("GPU is lost", Failure.LOST), ("[GPU requires reset]", Failure.LOST)],
)
def test_lost_gpu_in_a_block_is_lost(word: str, kind: Failure, tmp_path: Path) -> None:
    with pytest.raises(NvmlFailure) as caught:
        gpus(V100_390.replace("37 %", word), tmp_path)
    assert caught.value.kind is kind


def test_gpu_without_a_handle_does_not_hide_its_sibling(tmp_path: Path) -> None:
    lost = "Unable to determine the device handle for GPU0000:1A:00.0: GPU is lost.  Reboot the system.\n"
    path = tmp_path / "dump"
    path.write_text(V100_390.replace("GPU 00000000:15:00.0", lost + "GPU 00000000:15:00.0"))
    nvml = open_capture(str(path))

    assert ask(nvml, "nvmlDeviceGetCount") == 2
    with pytest.raises(NvmlFailure, match="GPU is lost"):
        register(nvml, 0)
    assert register(nvml, 1)[1].pci_bus_id == "00000000:15:00.0"


def test_unknown_error_is_an_error_of_that_reading_only(tmp_path: Path) -> None:
    (gpu,) = gpus(V100_390.replace("151.26 W", "[Unknown Error]"), tmp_path)

    assert gpu.errors == {"power.average": "Unknown Error"}
    assert gpu.power.average is None
    assert gpu.power.limit_enforced == 240.0


def test_partial_dump_names_the_gpu_by_its_address(tmp_path: Path) -> None:
    """`nvidia-smi -q -d TEMPERATURE` prints neither UUID nor PCI section."""
    (gpu,) = gpus(
        "==============NVSMI LOG==============\n\nDriver Version : 550.54.15\nAttached GPUs : 8\n"
        "GPU 00000000:C1:00.0\n    Temperature\n        GPU Current Temp : 51 C\n",
        tmp_path,
    )

    assert gpu.identity.pci_bus_id == "00000000:C1:00.0"
    assert gpu.identity.uuid.startswith("GPU-")
    assert gpu.temperature.gpu == 51.0
    assert gpu.processes is None


def cut_within(dump: str, line: str) -> str:
    """The dump up to this line of its last GPU."""
    return dump[: dump.rindex(line)]


@pytest.mark.parametrize(
    ("dump", "says"),
    [
        (cut_within(V100_390, "    Clocks"), "the dump ends within GPU 00000000:15:00.0: it was cut"),
        (cut_within(GB200_570, "    Processes"), "the dump ends within GPU 00000018:01:00.0: it was cut"),
        (
            cut_within(GB200_570, "GPU 00000018:01:00.0"),
            "the dump counts 2 GPUs and has 1: it was cut, or made with -i",
        ),
        (V100_390, ""),
        (T4_XML_470, ""),
        (A100_XML_550, ""),
        (GB200_570, ""),
        ("==NVSMI LOG==\nGPU 00000000:C1:00.0\n    Temperature\n        GPU Current Temp : 51 C\n", ""),
    ],
)
def test_what_a_dump_should_have_and_has_not_is_named(dump: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "dump.txt"
    path.write_text(dump)
    assert missing(str(path)) == says


def test_a_gpu_that_is_cut_is_unknown_and_not_healthy(tmp_path: Path) -> None:
    path = tmp_path / "dump.txt"
    path.write_text(cut_within(V100_390, "    Ecc Mode"))
    result = run("--source", f"capture:{path}", "status")
    out = result.stdout
    assert result.exit_code == 3
    assert "capture: the dump ends within GPU 00000000:15:00.0: it was cut" in out
    assert re.search(r"^ +0 +unknown ", out, re.MULTILINE)


def reshaped(dump: str, how: str) -> bytes:
    match how:
        case "windows":
            return dump.replace("\n", "\r\n").encode()
        case "powershell":
            return dump.encode("utf-16")
        case "bom":
            return dump.encode("utf-8-sig")
        case "quoted":
            return "".join(f"        {line}\n" for line in dump.splitlines()).encode()
        case _:
            return (
                f"$ nvidia-smi -q\n{dump}\n[root@node ~]# dmesg | tail\nGPU 0000:99:00.0: Driver Version : 1\n".encode()
            )


@pytest.mark.parametrize("how", ["windows", "powershell", "bom", "quoted", "session"])
@pytest.mark.parametrize("dump", DUMPS, ids=["v100", "t4", "a100", "gb200"])
def test_what_people_do_to_text_changes_nothing(dump: str, how: str, tmp_path: Path) -> None:
    assert gpus(reshaped(dump, how), tmp_path) == gpus(dump, tmp_path)


def test_several_outputs_in_one_file_are_chosen_by_heading_or_number(tmp_path: Path) -> None:
    file = (
        f"## idle :: query\n{V100_390}\n## load :: query\n{V100_390.replace('151.26', '299.99')}\n# XML\n{T4_XML_470}"
    )

    assert [gpus(file, tmp_path, part)[0].power.average for part in ("", "idle", "load", "2", "3", "xml")] == [
        151.26, 151.26, 299.99, 299.99, 15.52, 15.52,
    ]  # fmt: skip
    with pytest.raises(UsageError, match=r"no part 'cold'.*idle :: query, load :: query, XML"):
        gpus(file, tmp_path, "cold")


def test_nvlinks_down_are_inactive_and_belong_to_their_gpu(tmp_path: Path) -> None:
    links = (
        "GPU 0: NVIDIA GB200 (UUID: GPU-0)\n\t Link 0: 50 GB/s\n\t Link 1: <inactive>\n"
        "GPU 1: NVIDIA GB200 (UUID: GPU-1)\n\t Link 0: 25.781 GB/s\n"
    )
    first, second = gpus(links + GB200_570, tmp_path)

    assert [(n.link, n.active, n.speed_bytes_per_second) for n in first.nvlinks] == [(0, True, 50e9), (1, False, None)]
    assert [(n.link, n.active, n.speed_bytes_per_second) for n in second.nvlinks] == [(0, True, 25.781e9)]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("hello\n", "neither a recording nor nvidia-smi"),
        ("==============NVSMI LOG==============\nDriver Version : 1\nAttached GPUs : 0\n", "no GPU"),
        ("<?xml version='1.0'?>\n<nvidia_smi_log><gpu>", "cannot read the XML"),
        ("<?xml version='1.0'?>\n<nvidia_smi_log></nvidia_smi_log>", "no GPU"),
        ('<!DOCTYPE nvidia_smi_log [<!ENTITY a "aaaa">]>\n<nvidia_smi_log>&a;</nvidia_smi_log>', "undefined entity"),
        ("<nvidia_smi_log>" + "<a>" * 100, "nested too deep"),
    ],
)
def test_what_is_no_dump_is_refused(content: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=words):
        gpus(content, tmp_path)


REAL = [path.read_text() for path in sorted(CAPTURES.glob("*.txt"))]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=examples(150))
@given(data=st.data())
def test_damaged_dumps_are_read_or_refused(data: st.DataObject, tmp_path: Path) -> None:
    """Whatever is cut, doubled or overwritten: a Gpu, UsageError, or the NvmlFailure of a lost one, nothing else."""
    text = data.draw(st.sampled_from([*DUMPS, *REAL]))
    for _ in range(data.draw(st.integers(1, 8))):
        start = data.draw(st.integers(0, len(text)))
        length = data.draw(st.integers(0, 200))
        junk = data.draw(
            st.sampled_from(
                ["", text[start : start + length], " : ", "\n" + " " * 40, "N/A", "99999999999999999999", "-1 W"]
            )
            | st.text(max_size=8)
        )
        text = text[:start] + junk + text[start + length :]
    try:
        read = gpus(text.encode(errors="replace"), tmp_path)
    except (UsageError, NvmlFailure):
        return
    assert all(isinstance(gpu, Gpu) for gpu in read)


@settings(deadline=None, max_examples=examples(150))
@given(value=st.text(max_size=30) | st.floats().map(str) | st.integers().map(str))
def test_any_printed_value_is_a_value_or_none(value: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    lines = re.sub(r"( : )(?!Tesla|GPU-|390).*", lambda match: match[1] + value.replace("\n", " "), V100_390)
    content: Any = lines.replace(f"Attached GPUs                       : {value}", "").encode(errors="replace")
    try:
        read = gpus(content, tmp_path_factory.getbasetemp())
    except (UsageError, NvmlFailure):
        return
    assert all(isinstance(gpu, Gpu) for gpu in read)


def test_a_value_that_is_cut_by_elements_or_full_of_notes_costs_time_by_its_length() -> None:
    size = 200_000
    began = time.process_time()
    root = parse_xml(f"<nvidia_smi_log><a>{'x' * size}{'<b/>y' * size}</a></nvidia_smi_log>")
    assert [child.value for child in root.children] == ["x" * size + "y" * size]
    assert refuse_words("x" + " [deprecated" * (size // 10) + " x").startswith("x [")
    assert time.process_time() - began < 5.0


def test_a_dump_reports_no_events_but_waits_as_the_driver_does(tmp_path: Path) -> None:
    path = tmp_path / "dump"
    path.write_text(V100_390)
    events = DriverEventReader(nvml := open_capture(str(path)))
    events.add(*register(nvml, 0))
    began = time.monotonic()

    assert events.wait(20, time.time) is None
    assert time.monotonic() - began >= 0.02


@pytest.mark.parametrize(
    ("status", "licensed", "expires"),
    [
        ("Licensed (Expiry: 2026-7-7 16:1:44 GMT)", True, 1783440104.0),
        ("Licensed (Expiry: N/A)", True, None),
        ("Licensed (Expiry: 2026-99-7 16:1:44 GMT)", True, None),
        ("Unlicensed (Restricted)", False, None),
        ("N/A", None, None),
    ],
)
@pytest.mark.parametrize("form", ["xml", "text"])
def test_the_licence_of_a_guest(
    form: str, status: str, licensed: bool | None, expires: float | None, tmp_path: Path
) -> None:
    product = "NVIDIA RTX Virtual Workstation"
    printed = {
        "xml": f"<vgpu_software_licensed_product><licensed_product_name>{product}</licensed_product_name>"
        f"<license_status>{status}</license_status></vgpu_software_licensed_product><processes>",
        "text": f"    vGPU Software Licensed Product\n        Product Name : {product}\n"
        f"        License Status : {status}\n    Processes",
    }[form]
    dump, section = {"xml": (T4_XML_470, "<processes>"), "text": (GB200_570, "    Processes")}[form]
    (gpu, *_) = gpus(dump.replace(section, printed), tmp_path)

    known = licensed is not None
    assert gpu.license == License(product=product if known else None, licensed=licensed, expires=expires)


def test_memory_that_confidential_computing_protects(tmp_path: Path) -> None:
    text = (CAPTURES / "h100__590.48.01.txt").read_text()
    on = re.sub(r"(Conf Compute Protected Memory Usage\s+Total\s+): 0 MiB", r"\1: 4096 MiB", text)

    assert on != text
    assert gpus(text, tmp_path)[0].protected_memory.total is None
    assert gpus(on, tmp_path)[0].protected_memory.total == 4096 * MIB


@pytest.mark.parametrize(("sent", "rate"), [("1430 KB/s", 1430 * 1024.0), ("N/A", None)])
def test_pcie_throughput_of_a_dump(sent: str, rate: float | None, tmp_path: Path) -> None:
    text = (CAPTURES / "h100__590.48.01.txt").read_text()
    printed = re.sub(r"(Tx Throughput\s+:) .*", rf"\1 {sent}", text)

    assert printed != text
    assert gpus(printed, tmp_path)[0].pcie.transmit_rate == rate
