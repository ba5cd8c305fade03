"""The collectives of a program, as XLA prints it."""

from __future__ import annotations

from allranks.gate.lockstep.hlo import collectives_of_module

TEXT = """HloModule , is_scheduled=true, num_partitions=4

ENTRY {
  tmp_0 = f32[2]{0} parameter(0), sharding={devices=[4]<=[4]}
  tmp_2 = f32[2]{0} all-reduce(f32[2]{0} tmp_0), channel_id=1, replica_groups={{0,1},{2,3}}, to_apply=
  {
    tmp_0 = f32[] parameter(0)
    tmp_1 = f32[] parameter(1)
    ROOT tmp_2 = f32[] maximum(f32[] tmp_0, f32[] tmp_1)
  }
  tmp_3 = bf16[8,64]{1,0:T(8,128)} all-gather-start(bf16[2,64]{1,0} tmp_1), channel_id=2, replica_groups=[1,4]<=[4], x=1
  tmp_4 = bf16[8,64]{1,0} all-gather-done(bf16[8,64]{1,0} tmp_3)
  tmp_5 = (f32[4]{0}, f32[4]{0}) collective-permute(f32[4]{0} tmp_2), source_target_pairs={{0,1},{1,0}}
  tmp_6 = (f32[3]{0}, s32[]) all-to-all(f32[3]{0} tmp_2, s32[] tmp_3), replica_groups={}
  ROOT tmp_7 = f32[] fusion(f32[2]{0} tmp_0), kind=kLoop, calls=
}
"""


def test_collectives_are_told_with_reduction_shape_and_groups() -> None:
    """In their order; the end of one that runs beside others is no second one."""
    assert collectives_of_module(TEXT) == [
        "all-reduce maximum f32[2] among {{0,1},{2,3}}",
        "all-gather bf16[8,64] among [1,4]<=[4]",
        "collective-permute (f32[4], f32[4]) among {{0,1},{1,0}}",
        "all-to-all (f32[3], s32[]) among {}",
    ]


def test_a_program_without_any_has_none() -> None:
    assert collectives_of_module("ENTRY {\n  ROOT tmp_0 = f32[8]{0} iota(), iota_dimension=0\n}") == []
