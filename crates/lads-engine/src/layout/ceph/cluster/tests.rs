use super::*;

/// As 16.2.15 answers, less what nobody looks at.
const ANSWERS: &str = r#"
{"epoch":20,"fsid":"5fcd8527-41c3-47d8-98bc-a08d4d401070","pools":[
 {"pool":1,"pool_name":"meta","object_hash":2,"pg_num":8,
  "application_metadata":{"cephfs":{"metadata":"fs"}}},
 {"pool":2,"pool_name":"data","object_hash":2,"pg_num":32,
  "application_metadata":{"cephfs":{"data":"fs"}}},
 {"pool":3,"pool_name":"disks","object_hash":2,"pg_num":32,"application_metadata":{"rbd":{}}}],
 "osds":[
 {"osd":7,"up":1,"in":0,"public_addr":"10.0.0.7:6800/1","state":["exists","up"]},
 {"osd":0,"up":1,"in":1,"public_addr":"10.0.0.5:6800/1","state":["exists","up"]},
 {"osd":1,"up":1,"in":1,"public_addr":"10.0.0.5:6804/1","state":["exists","up"]},
 {"osd":5,"up":0,"in":1,"public_addr":"[fd00::6]:6800/1","state":["exists"]}]}

{"nodes":[{"id":-1,"name":"default","type":"root","children":[-3,-5]},
 {"id":-3,"name":"node1","type":"host","children":[1,0]},
 {"id":-5,"name":"node2","type":"host","children":[5]},
 {"id":0,"device_class":"nvme","name":"osd.0","type":"osd","status":"up"},
 {"id":1,"device_class":"hdd","name":"osd.1","type":"osd","status":"up"}],"stray":[]}

{"pg_ready":true,"pg_stats":[
 {"pgid":"2.7","state":"active+clean","up":[5,0],"acting":[5,0],"up_primary":5,"acting_primary":5},
 {"pgid":"2.f","state":"active+clean","up":[7],"acting":[7],"up_primary":7,"acting_primary":7},
 {"pgid":"nonsense","acting_primary":1}]}

{"nodes":[{"id":0,"name":"osd.0","type":"osd","kb":2097152,"kb_used":43,"kb_avail":2097108},
 {"id":99,"name":"osd.99","type":"osd","kb":1,"kb_avail":1}],"stray":[]}
"#;

fn parsed() -> Vec<Value> {
    read(ANSWERS.as_bytes())
}

/// OSDs 0, 1, 5 (down) and 7 (out); groups 7 and f of the pool `data` are on 5 and 7.
pub(in crate::layout::ceph) fn of_four() -> Cluster {
    Cluster::of(&parsed()).unwrap()
}

#[test]
fn a_cluster_says_where_its_osds_are_and_how() {
    let cluster = of_four();
    assert_eq!(cluster.fsid, "5fcd8527-41c3-47d8-98bc-a08d4d401070");
    let osd = |at: usize| &cluster.osds[at];
    assert_eq!(
        (osd(0).is_flash, osd(1).is_flash, osd(2).is_flash),
        (Some(true), Some(false), None)
    );
    assert_eq!((osd(0).capacity_bytes, osd(0).free_bytes), (2 << 30, 2_097_108 << 10));
    let hosts: Vec<_> = cluster.osds.iter().map(|osd| osd.host.as_str()).collect();
    assert_eq!(hosts, ["node1", "node1", "node2", "10.0.0.7"]);
    assert_eq!(cluster.primaries, [((2, 7), 5), ((2, 0xf), 7)].into());
}

#[test]
fn only_pools_that_hold_data_of_files_count() {
    let cluster = of_four();
    assert_eq!(cluster.pool("data"), cluster.pool("2"));
    assert_eq!(cluster.pool("data").unwrap().group_count, 32);
    assert_eq!(
        (cluster.pool("meta"), cluster.pool("disks"), cluster.pool("x")),
        (None, None, None)
    );
}

#[test]
fn without_the_manager_each_group_is_asked_for() {
    let mut cluster = Cluster::of(&parsed()[..2]).unwrap();
    assert!(cluster.primaries.is_empty());
    let questions = cluster.single_questions();
    assert_eq!(questions.lines().count(), 32);
    assert_eq!(questions.lines().last(), Some("pg map 2.1f"));
    let answer = r#"{"epoch":20,"raw_pgid":"2.1","pgid":"2.1","up":[2],"acting":[2]}"#;
    cluster.take_single(&[serde_json::from_str(answer).unwrap()]);
    assert_eq!(cluster.primaries, [((2, 1), 2)].into());
}

#[test]
fn what_is_no_answer_makes_no_cluster() {
    assert_eq!(Cluster::of(&[]), None);
    assert_eq!(Cluster::of(&[serde_json::json!({"pools": [1, {"pool": "x"}]})]), None);
    let odd = serde_json::json!({"fsid": "a", "pools": [1, {}], "osds": [[], {"osd": 1}]});
    assert_eq!(Cluster::of(&[odd]).unwrap().osds.len(), 1);
}
